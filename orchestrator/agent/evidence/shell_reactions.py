"""What a script makes of a status other than 0, by its text: something that depends on it, or no more than words.

A status is tested where a command runs because of it, or a branch of an `if` or the body of a loop is left out; where
it leaves the script; or where a variable that was set because of it leads to one of these. To print it is no test.
"""

from __future__ import annotations

import contextlib
import re
from typing import (
    Container,
    Dict,
    Iterable,
    Iterator,
    List,
    Literal,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from orchestrator.agent.evidence.shell_commands import (
    DECLARING,
    ENDING,
    QUESTIONS,
    READING,
    SAYING,
    is_overwritten,
    is_question,
    names_variable,
    only_prints,
    reach,
    reads_file,
    set_by,
    simple,
    text_of,
    words_given,
    written_by,
)
from orchestrator.agent.evidence.shell_syntax import Unparsable, parse
from orchestrator.agent.evidence.shell_tree import (
    Block,
    Chain,
    Command,
    Compound,
    Function,
    Node,
    Pipeline,
    Simple,
    Substitution,
    condensed,
)

Fate = Literal["tested", "said", "ignored", "negated", "kept", "substituted", "untested", "left"]
"""What becomes of a status: it is printed at most, dropped, in a variable that leads to nothing; bash forgets it, with
the substitution that it is of, which the script could have asked for in another way (`untested`) or in none; or it is a
statement's, of which the shell itself tells (`left`), but for that of `! command`, which it drops (`negated`).
"""


class Call(NamedTuple):
    """Where a function was called that ended with the status."""

    function: str
    file: str
    line: int


_DOING_NOTHING = (SAYING, QUESTIONS, DECLARING, READING, ENDING, ("let", "touch"))
_DROPPING = ("", ":", "true", "exit", "return", "break", "continue")
_SOURCING = (".", "source")
_FAILING = ("exit", "return")
_LEAVING = ("break", "return", "exit")
_STATUS = re.compile(r"\$\{?(\?|PIPESTATUS)")
_CUT = 300  # what is compared of a longer command


class Scripts:
    """The texts of a stage's shells, by file, or by process where lines were given to one; those in `errexit` were
    started so that a failure ends them.
    """

    def __init__(self, texts: Dict[str, str], errexit: Container[str] = ()) -> None:
        self._texts, self._errexit = texts, [name for name in texts if name in errexit]
        self.names = list(texts)
        self._parsed: Dict[str, Optional[Block]] = {}
        self._simple: Dict[str, List[Simple]] = {}
        self._functions: Optional[Dict[str, Function]] = None
        self._sources: Optional[bool] = None

    def find(self, place: str, line: int, command: str) -> List[Simple]:
        """The commands in `line` of a text that look like `command`, which is as bash tells it; of those that are the
        same there, all. Where there is no such text they may be in any, such as a here-document.
        """
        told = condensed(command)
        for name in [place] if self._script(place) else list(self._texts):
            same = [s for s in self._commands(name) if s.key and _is_like(told, s.key)]
            here = [s for s in same if s.line <= line <= s.last_line] if name == place else same
            if here or same:
                longest = max(len(s.key) for s in here or same)
                return [s for s in here or same if len(s.key) == longest]
        return []

    def _script(self, name: str) -> Optional[Block]:
        if name not in self._parsed:
            try:
                self._parsed[name] = parse(self._texts[name]) if name in self._texts else None
            except Unparsable:
                self._parsed[name] = None
        return self._parsed[name]

    def _commands(self, name: str) -> List[Simple]:
        if name not in self._simple:
            script = self._script(name)
            self._simple[name] = [node for node in script.walk() if isinstance(node, Simple)] if script else []
        return self._simple[name]

    def _function(self, name: str) -> Optional[Function]:
        if self._functions is None:
            scripts = filter(None, map(self._script, self._texts))
            self._functions = {n.name: n for s in scripts for n in s.walk() if isinstance(n, Function)}
        return self._functions.get(name)

    # What a status leads to -----------------------------------------------------------------------------------------

    def fate(self, command: Simple, calls: Sequence[Call], *, tested: bool, left: bool, fails: bool = True) -> Fate:
        """What becomes of the failure of `command`, behind the `calls` of functions that it ended.

        `tested` says that bash takes it for tested; `left` that its script ended badly, so that it may have been by it.
        Where it does not fail itself, a ! does that.
        """
        return _Way(self, list(calls), set(), tested=tested, left=left, fails=fails).of(command)

    def is_tested_by_trap(self, text: str, signal: str) -> bool:
        """Whether something depends on a failure because a trap with this text ran for it."""
        traps = [c for c in self.called("trap") if any(w.literal.upper() == signal for w in c.words[2:])]
        nodes: List[Node] = [b for c in traps if _bare(c.words[1].text) == _bare(text) for b in c.given]
        if not nodes:  # made by an expansion: what it sets is not followed
            with contextlib.suppress(Unparsable):
                nodes = [parse(text)]
        return self.acts(nodes) or self.leads_on(nodes, set())

    def acts(self, nodes: Iterable[Node]) -> bool:
        """Whether there is a command in them that does more than to say something, or to set a variable."""
        return any(map(self._does_something, simple(nodes)))

    def _does_something(self, command: Simple, inside: Tuple[str, ...] = ()) -> bool:
        name = command.name
        if name in _FAILING:
            return len(command.words) > 1 and command.words[1].literal != "0"
        if not name or any(name in names for names in _DOING_NOTHING):
            return False
        function = self._function(name)
        if function is None:
            return not ((name == "eval" and command.given) or only_prints(command) or self._is_given_words(command))
        inside = (*inside, name)
        return inside.count(name) == 1 and any(self._does_something(c, inside) for c in simple([function.body]))

    def _is_given_words(self, command: Simple) -> bool:
        """Whether it is a shell with lines that do nothing."""
        given = words_given(command)
        try:
            return bool(given) and not self.acts([parse(given)])
        except Unparsable:
            return False

    def forbid(self, nodes: Iterable[Node]) -> bool:
        """Whether the script ends badly where they run."""
        for command in simple(nodes):
            function = self._function(command.name)
            inside = simple([function.body]) if function else iter(())
            if any(c.name == "exit" and self._does_something(c) for c in (command, *inside)):
                return True
        return False

    def leads_on(self, nodes: Iterable[Node], seen: Set[str]) -> bool:
        """Whether a variable that they set, or a file that they print to, is read where something depends on it."""
        commands = list(self._with_functions(simple(nodes)))
        found = [(name, c) for c in commands for name in set_by(c) if name not in seen]
        if any(self._is_read(name, self._scope(c), seen) for name, c in found if not is_overwritten(name, c)):
            return True
        return any(self._is_file_read(file, c, seen) for c in commands for file in written_by(c))

    def _with_functions(self, commands: Iterable[Simple], inside: Tuple[str, ...] = ()) -> Iterator[Simple]:
        """The commands, and those of the functions that they call."""
        for command in commands:
            yield command
            function = None if command.name in inside else self._function(command.name)
            if function is not None:
                yield from self._with_functions(simple([function.body]), (*inside, command.name))

    def _is_file_read(self, file: str, writer: Simple, seen: Set[str]) -> bool:
        """Whether something depends on a file behind the command that writes it."""
        asked = f"> {file}"
        if asked in seen:
            return False
        seen.add(asked)
        nodes = list(_root(writer).walk())
        following = nodes[nodes.index(writer) + 1 :]
        return any(self._depends_on(node, seen) for node in following if reads_file(node, file))

    def _scope(self, command: Node) -> Node:
        """Where a variable lives that a command sets: its script, or the subshell that it is in, of which `x | while
        read` is one.
        """
        node = command
        while node.parent is not None:
            above = node.parent
            is_last = isinstance(above, Pipeline) and above.members[-1] is node and self.called("shopt")
            is_piped = isinstance(above, Pipeline) and len(above.members) > 1 and not is_last
            is_forked = (isinstance(above, Compound) and above.kind == "(") or isinstance(above, Substitution)
            if is_piped or is_forked or (isinstance(above, Block) and isinstance(node, Chain) and node.background):
                return node
            node = above
        return node

    def _is_read(self, name: str, scope: Node, seen: Set[str]) -> bool:
        seen.add(name)
        is_script = scope.parent is None and self._shares_variables()
        scopes = filter(None, map(self._script, self._texts)) if is_script else [scope]
        return any(self._reads(node, name, seen) for scope in scopes for node in scope.walk())

    def _shares_variables(self) -> bool:
        """Whether one of the texts may be a part of another's script."""
        if self._sources is None:
            self._sources = any(self.called(name) for name in _SOURCING)
        return self._sources

    def _reads(self, node: Node, name: str, seen: Set[str]) -> bool:
        if isinstance(node, Compound):
            return any(names_variable(word.text, name) for word in node.words) and self._depends_on(node, seen)
        if not isinstance(node, Simple):
            return False
        sets = list(set_by(node))
        if name in sets and (node.name == "export" or re.search(r"^(declare|typeset) -\w*x", node.text)):
            return True
        if not names_variable(node.text, name, bare=node.name in ("((", "[[", "let")):
            return False
        return self._depends_on(node, seen, alone=node.name == "((" and name in sets)

    def _depends_on(self, node: Node, seen: Set[str], *, alone: bool = False) -> bool:
        """Whether something depends on what this command was given; `alone` is a question that nobody asks."""
        if isinstance(node, Compound):
            return self.acts(node.bodies) or self.leads_on(node.bodies, seen)
        if not isinstance(node, Simple):
            return False
        if (node.name in QUESTIONS and not alone) or node.name == "return":  # which its function's callers may ask
            return self.is_asked(node, seen)
        if any(set_by(node)) and not self._does_something(node):
            return self.leads_on([node], seen)
        return self._does_something(node)

    def is_asked(self, command: Command, seen: Set[str]) -> bool:
        """Whether something depends on the status of a question."""
        return _Way(self, [], seen, question=True).of(command) in ("tested", "left")

    def sourced(self) -> List[str]:
        """The files that are read into the scripts, as these name them."""
        commands = (c for name in self.names for c in self._commands(name) if c.name in _SOURCING)
        return [c.words[1].literal for c in commands if len(c.words) > 1 and "$" not in c.words[1].text]

    def called(self, function: str) -> List[Simple]:
        """The calls of a function."""
        return [c for name in self._texts for c in self._commands(name) if c.name == function]

    def called_at(self, call: Call) -> Optional[Simple]:
        """The command that has called a function, by its name or as one of the arguments of another."""
        here = [c for c in self._commands(call.file) if c.line <= call.line <= c.last_line]
        names = (call.function, *_SOURCING) if call.function == "source" else (call.function,)
        by_name = (c for c in here if c.name in names)
        return next(by_name, None) or next((c for c in here if c.name.startswith("$")), None)

    def has_errexit(self, node: Node) -> bool:
        """Whether a statement that fails ends the script that holds `node`."""
        script = _root(node)
        sets = (c for c in script.walk() if isinstance(c, Simple) and c.name == "set")
        return any(re.search(r" -\w*e|errexit", c.text) for c in sets) or any(
            self._parsed.get(name) is script for name in self._errexit
        )


class _Way:
    """Follows a status upwards, from a command to what holds it: that of a failure, or of a `question`."""

    def __init__(
        self,
        scripts: Scripts,
        calls: List[Call],
        seen: Set[str],
        *,
        question: bool = False,
        tested: bool = True,
        left: bool = False,
        fails: bool = True,
    ) -> None:
        self._scripts, self._calls, self._seen, self._question = scripts, calls, seen, question
        self._tested, self._left = tested, left
        self._fails = fails
        self._dropped: Fate = "ignored" if fails else "negated"
        self._so_far: Optional[Fate] = None

    def of(self, command: Command) -> Fate:
        node: "Node | Fate" = command
        if isinstance(command, Simple) and command.name == "return":
            node = self._out_of_function(command)
        while isinstance(node, Node):
            above = node.parent
            if isinstance(above, Pipeline):
                node = self._in_pipeline(above, node)
            elif isinstance(above, Chain):
                node = self._in_chain(above, above.pipelines.index(node))  # type: ignore[arg-type]
            elif isinstance(above, Block):
                node = self._in_block(above, above.chains.index(node))  # type: ignore[arg-type]
            elif isinstance(above, Function):
                node = self._out_of_function(above)
            else:
                node = self._unused()
        return node

    def _unused(self) -> Fate:
        """Of a status that nothing more depends on. `! command` alone says that it is to fail."""
        return self._so_far or (self._dropped if self._fails or self._question else "tested")

    def _in_pipeline(self, pipeline: Pipeline, member: Node) -> "Node | Fate":
        if not self._tested and member is not pipeline.members[-1]:
            return "left"
        if pipeline.negated:
            self._fails, self._tested = not self._fails, True
        return pipeline

    def _in_chain(self, chain: Chain, index: int) -> "Node | Fate":
        if index + 1 == len(chain.pipelines):
            return chain
        self._tested = True
        may, must, ends = reach(chain, index, not self._fails)
        else_may, else_must, else_ends = reach(chain, index, self._fails)
        done = [chain.pipelines[i] for i in sorted(may - else_must)]
        left_out = [chain.pipelines[i] for i in sorted(else_may - must)]
        depends = [*done, *left_out]
        if self._scripts.forbid(left_out):
            return "tested"  # `command && exit 1`: it is to fail
        if self._scripts.acts(depends if self._question else done) or self._scripts.leads_on(depends, self._seen):
            return "tested"
        if any(self._scripts.is_asked(c, self._seen) for c in simple(done) if _reads_status(c)):
            return "tested"
        if self._scripts.leads_on([chain.pipelines[index], *_passed_over(chain, done)], self._seen):
            return "tested"  # what it has printed is looked at; or what the rest of the loop would have set
        if depends:
            kept = _saying(depends) == "kept"
            self._so_far = _saying(done) if done else "kept" if kept else "ignored"
        substitution = chain.parent and chain.parent.parent
        if isinstance(substitution, Substitution) and substitution.kind == "$(" and any(map(_prints, depends)):
            return self._value(substitution)
        self._fails = False in ends
        return chain if ends != else_ends else self._unused()

    def _in_block(self, block: Block, index: int) -> "Node | Fate":
        following = block.chains[index + 1 : index + 2]
        if block.chains[index].background:
            return "left"
        if following:
            return self._before(following[0], block)
        holder = block.parent
        if holder is None:
            return self._out_of_script()
        if isinstance(holder, Substitution):
            return self._out_of_substitution(holder)
        if isinstance(holder, Simple):  # `eval`, or the script in a here-document or a trap
            return holder if holder.name == "eval" else self._out_of_script()
        if isinstance(holder, Compound) and any(block is condition for condition in holder.conditions):
            return self._tested_by(holder, block)
        return holder

    def _before(self, following: Chain, block: Block) -> Fate:
        """Of a statement with another one after it."""
        reader = _first(following)
        if reader is not None and reads_status(text_of(reader)):
            return self._read_by(reader)
        if self._question:
            return "tested" if self._scripts.has_errexit(block) else "ignored"
        return self._unused() if self._tested else "left"

    def _read_by(self, reader: Command) -> Fate:
        """Of a status that `$?` is, or was."""
        if isinstance(reader, Compound):
            return "tested" if self._depends_on(reader.bodies) else "said"
        if isinstance(reader, Simple) and reader.name in QUESTIONS:
            return "tested" if self._scripts.is_asked(reader, self._seen) else "said"
        is_looked_at = any(self._value(substitution) == "tested" for substitution in self._printed_to(reader))
        return "tested" if is_looked_at or self._depends_on([reader]) else _saying([reader])

    def _printed_to(self, node: Node) -> Iterator[Substitution]:
        """The `$(...)` that give what a command prints, also where they call its function."""
        above: Optional[Node] = node
        while above is not None and not isinstance(above, (Function, Substitution)):
            above = above.parent
        if isinstance(above, Substitution) and above.kind == "$(":
            yield above
        elif isinstance(above, Function) and f"$({above.name}" not in self._seen:
            self._seen.add(f"$({above.name}")
            for call in self._scripts.called(above.name):
                yield from self._printed_to(call)

    def _depends_on(self, nodes: Sequence[Node]) -> bool:
        return self._scripts.acts(nodes) or self._scripts.leads_on(nodes, self._seen)

    def _tested_by(self, compound: Compound, condition: Block) -> Fate:
        """Of the condition of an `if` or a loop."""
        index = next(i for i, block in enumerate(compound.conditions) if block is condition)
        return "tested" if self._depends_on([*compound.conditions[index + 1 :], *compound.bodies[index:]]) else "said"

    def _out_of_script(self) -> "Node | Fate":
        if self._calls and self._calls[0].function == "source":
            source = self._scripts.called_at(self._calls.pop(0))
            if source is not None:
                return source
        return "tested" if self._left or self._question else self._unused()

    def _out_of_function(self, node: Node) -> "Node | Fate":
        while not isinstance(node, Function):
            if node.parent is None:
                return self._out_of_script()
            node = node.parent
        if self._question:
            asked = f"{node.name}()"
            calls = [] if asked in self._seen else self._scripts.called(node.name)
            self._seen.add(asked)
            return "tested" if any(self._scripts.is_asked(call, self._seen) for call in calls) else "ignored"
        if not self._calls:  # it went on, as in the next turn of a loop
            return self._unused() if self._tested else "left"
        return self._scripts.called_at(self._calls.pop(0)) or "tested"

    def _out_of_substitution(self, substitution: Substitution) -> "Node | Fate":
        holder = substitution.parent
        if substitution.kind != "$(" or holder is None:
            return "substituted"
        if is_question(holder):
            return self._value(substitution)
        if isinstance(holder, Simple) and any(substitution in word.inside for _, word in holder.assignments):
            return "untested" if holder.words else holder  # whose status is the substitution's
        if isinstance(holder, Simple) and any(substitution in word.inside for word in holder.words):
            return "untested"
        return "substituted"

    def _value(self, substitution: Substitution) -> Fate:
        """Of a status on which depends what a substitution gives."""
        holder = substitution.parent
        if isinstance(holder, Compound):
            return "tested" if self._depends_on(holder.bodies) else "said"
        if isinstance(holder, Simple) and holder.name in QUESTIONS:
            return "tested" if self._scripts.is_asked(holder, self._seen) else "said"
        return "tested" if isinstance(holder, Simple) and self._depends_on([holder]) else "said"


def ends_its_loop(command: Node) -> bool:
    """Whether a success of the command ends a loop: what fails in it is tried again."""
    node = command
    while node.parent is not None and not isinstance(node, Function):
        above = node.parent
        if isinstance(above, Chain):
            following = above.pipelines[above.pipelines.index(node) + 1 :]  # type: ignore[arg-type]
            if any(c.name in _LEAVING for c in simple(following)):
                return True
        if isinstance(above, Compound) and any(node is condition for condition in above.conditions):
            return above.kind in ("while", "until") or any(c.name in _LEAVING for c in simple(above.bodies))
        node = above
    return False


def reads_status(command: str) -> bool:
    """Whether a command expands the status of the one before it."""
    return _STATUS.search(command) is not None


def only_says(command: str) -> bool:
    """Whether a command that bash tells of is one that only prints."""
    return command.partition(" ")[0] in SAYING


def _root(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


def _passed_over(chain: Chain, done: Iterable[Node]) -> Sequence[Node]:
    """The rest of a loop's body, if a `continue` skips it."""
    block = chain.parent
    if not isinstance(block, Block) or not any(c.name == "continue" for c in simple(done)):
        return []
    return block.chains[block.chains.index(chain) + 1 :]


def _reads_status(command: Simple) -> bool:
    return command.name in QUESTIONS and reads_status(command.text)


def _first(node: Node) -> Optional[Command]:
    """The command of which a statement first expands words."""
    if isinstance(node, Simple) or (isinstance(node, Compound) and node.words):
        return node
    return next((found for part in node.parts() for found in [_first(part)] if found is not None), None)


def _saying(nodes: Sequence[Node]) -> Fate:
    """How that is called which `nodes` make of a status, of whom none acts."""
    commands = list(simple(nodes))
    if commands and all(any(set_by(c)) for c in commands):
        return "kept"
    return "said" if any(c.name not in _DROPPING for c in commands) else "ignored"


def _bare(text: str) -> str:
    """Without quotes, of which bash tells in another way than the script has them."""
    return condensed(re.sub(r"[\\'\"]", "", text))


def _prints(node: Node) -> bool:
    return any(c.name in ("echo", "printf", "cat") for c in simple([node]))


def _is_like(told: str, key: str) -> bool:
    """Whether what bash tells of a command, with its redirections and perhaps cut, may be the one with this key."""
    return told.startswith(key) or (len(told) >= _CUT and key.startswith(told[:_CUT]))
