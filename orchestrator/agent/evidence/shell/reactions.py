"""What a script makes of a status other than 0, by its text: something that depends on it, or no more than words.

A status is tested where a command runs because of it, or a branch of an `if` or the body of a loop is left out; where
it leaves the script; or where a variable that was set because of it leads to one of these. To print it is no test.
"""

from __future__ import annotations

import contextlib
import re
from typing import Iterable, Iterator, List, Literal, Optional, Sequence, Set

from orchestrator.agent.evidence.shell.commands import (
    QUESTIONS,
    is_overwritten,
    is_question,
    is_set_anew,
    names_variable,
    reach,
    reads_file,
    reads_status,
    set_by,
    simple,
    text_of,
    written_by,
)
from orchestrator.agent.evidence.shell.numbers import Status
from orchestrator.agent.evidence.shell.scripts import Call, Scripts, root
from orchestrator.agent.evidence.shell.syntax import Unparsable, parse
from orchestrator.agent.evidence.shell.tree import (
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

Fate = Literal["tested", "as 0", "said", "ignored", "negated", "kept", "substituted", "untested", "left"]
"""What becomes of a status: it is asked for, and 0 would get the same answer; it is printed at most, dropped, in a
variable that leads to nothing; bash forgets it, with the substitution that it is of, which the script could have asked
for in another way (`untested`) or in none; or it is a statement's, of which the shell itself tells (`left`), but for
that of `! command`, which it drops (`negated`).
"""

_DROPPING = ("", ":", "true", "exit", "return", "break", "continue")
_GIVEN = re.compile(r"\$\{?[1-9@*]")


def fate(
    scripts: Scripts,
    command: Simple,
    calls: Sequence[Call],
    *,
    tested: bool,
    left: bool,
    fails: bool = True,
    code: Optional[int] = None,
) -> Fate:
    """What becomes of the failure of `command`, behind the `calls` of functions that it ended.

    `tested` says that bash takes it for tested; `left` that its script ended badly, so that it may have been by it.
    Where it does not fail itself, a ! does that. With its `code`, questions about that are answered.
    """
    found = _Way(_Dependents(scripts, left=left), list(calls), tested=tested, left=left, fails=fails).of(command)
    if found != "tested" or code is None or not fails:
        return found
    dependents = _Dependents(scripts, Status(command, code), left=left)
    by_code = _Way(dependents, list(calls), tested=tested, left=left).of(command)
    return found if by_code in ("tested", "left") or not dependents.took_as_0 else "as 0"


def tested_by_trap(scripts: Scripts, text: str, signal: str) -> bool:
    """Whether something depends on a failure because a trap with this text ran for it."""
    traps = [c for c in scripts.called("trap") if any(w.literal.upper() == signal for w in c.words[2:])]
    nodes: List[Node] = [b for c in traps if _bare(c.words[1].text) == _bare(text) for b in c.given]
    if not nodes:  # made by an expansion: what it sets is not followed
        with contextlib.suppress(Unparsable):
            nodes = [parse(text)]
    return _Dependents(scripts).on(nodes)


def is_asked(scripts: Scripts, question: Command) -> bool:
    """Whether something depends on the status of a question."""
    return _Dependents(scripts).is_asked(question)


class _Dependents:
    """What depends on a status by way of variables, files and questions, each of which is followed once.

    `took_as_0` says that a question was met which this `status` does not change; `left` that the script ended badly.
    """

    def __init__(self, scripts: Scripts, status: Optional[Status] = None, *, left: bool = True) -> None:
        self.scripts, self._status, self._left = scripts, status, left
        self.took_as_0 = False
        self._seen: Set[str] = set()

    def is_new(self, name: str) -> bool:
        """Whether a variable, file or function has not been followed yet; it has been then."""
        is_new = name not in self._seen
        self._seen.add(name)
        return is_new

    def on(self, nodes: Sequence[Node]) -> bool:
        """Whether something depends on whether they run."""
        return self.acts(nodes) or self.leads_on(nodes)

    def acts(self, nodes: Iterable[Node]) -> bool:
        """Whether there is a command in them that does something, and that this status does not leave out."""
        acting = [command for command in simple(nodes) if self.scripts.does_something(command)]
        if self._status is None or not acting:
            return bool(acting)
        kept = (self._status.kept_by(c, name) for c in simple(nodes) for name in set_by(c))
        statuses = [self._status, *filter(None, kept)]
        left = [command for command in acting if not any(status.leaves_out(command) for status in statuses)]
        self.took_as_0 |= len(left) < len(acting)
        return bool(left)

    def leads_on(self, nodes: Iterable[Node]) -> bool:
        """Whether a variable that they set, or a file that they print to, is read where something depends on it."""
        commands = list(self.scripts.with_functions(simple(nodes)))
        found = [(name, c) for c in commands for name in set_by(c) if name not in self._seen]
        if any(self._is_variable_read(name, c) for name, c in found if not self._is_overwritten(name, c)):
            return True
        return any(self._is_file_read(file, c) for c in commands for file in written_by(c))

    def takes_as_0(self, reader: Command, kept: Optional[Status] = None) -> bool:
        """Whether the status, `kept` in a variable or not, changes nothing in what reads it."""
        status = kept or self._status
        is_as_0 = status is not None and status.is_as_0(reader)
        self.took_as_0 |= is_as_0
        return is_as_0

    def is_told(self, call: Command) -> bool:
        """Whether something depends on what a function answers that asks what it is given."""
        if not isinstance(call, Simple):
            return False
        function = self.scripts.function(call.name)
        inside = simple([function.body]) if function is not None else ()
        asking = [c for c in inside if c.name in QUESTIONS and _GIVEN.search(c.text)]
        given = self._status and self._status.given_by(call)
        if given and asking and all(self.takes_as_0(question, given) for question in asking):
            return False
        return bool(asking) and self.is_asked(call)

    def is_asked(self, question: Command) -> bool:
        """Whether something depends on the status of a question."""
        return _Way(self, [], question=True, tested=False).of(question) in ("tested", "left")

    def _is_overwritten(self, name: str, setter: Simple) -> bool:
        return is_overwritten(name, setter) or (not self._left and is_set_anew(name, setter))

    def _is_file_read(self, file: str, writer: Simple) -> bool:
        """Whether something depends on a file behind the command that writes it."""
        if not self.is_new(f"> {file}"):
            return False
        nodes = list(root(writer).walk())
        following = nodes[nodes.index(writer) + 1 :]
        return any(self._on_given(node) for node in following if reads_file(node, file))

    def _is_variable_read(self, name: str, setter: Simple) -> bool:
        self._seen.add(name)
        nodes = [node for scope in self.scripts.scopes(setter, name) for node in scope.walk()]
        kept = self._status and self._status.kept_by(setter, name)
        if kept:
            asking = [node for node in nodes if isinstance(node, Command) and _names(node, name)]
            as_0 = [node for node in asking if self.takes_as_0(node, kept)]
            nodes = [node for node in nodes if node not in as_0 and not kept.leaves_out(node)]
        return any(self._reads(node, name) for node in nodes)

    def _reads(self, node: Node, name: str) -> bool:
        if not isinstance(node, Simple) or name not in set_by(node):
            return _names(node, name) and self._on_given(node)
        if node.name == "export" or re.search(r"^(declare|typeset) -\w*x", node.text):
            return True
        return _names(node, name) and self._on_given(node, alone=node.name == "((")

    def _on_given(self, node: Node, *, alone: bool = False) -> bool:
        """Whether something depends on what this command was given; `alone` is a question that nobody asks."""
        if isinstance(node, Compound):
            return self.on(node.bodies)
        if not isinstance(node, Simple):
            return False
        if (node.name in QUESTIONS and not alone) or node.name == "return":  # which its function's callers may ask
            return self.is_asked(node)
        if any(set_by(node)) and not self.scripts.does_something(node):
            return self.leads_on([node])
        return self.scripts.does_something(node) or self.is_told(node)


class _Way:
    """Follows a status upwards, from a command to what holds it: that of a failure, or of a `question`."""

    def __init__(
        self,
        dependents: _Dependents,
        calls: List[Call],
        *,
        question: bool = False,
        tested: bool,
        left: bool = False,
        fails: bool = True,
    ) -> None:
        self._dependents, self._scripts, self._calls = dependents, dependents.scripts, calls
        self._question, self._tested, self._left, self._fails = question, tested, left, fails
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
        if not (self._tested or self._question) and member is not pipeline.members[-1]:
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
        if self._dependents.acts(depends if self._question else done) or self._dependents.leads_on(depends):
            return "tested"
        asking = [c for c in simple(done) if _reads_status(c)]
        if any(map(self._dependents.takes_as_0, asking)):
            return self._unused()
        if any(map(self._dependents.is_asked, asking)):
            return "tested"
        if self._dependents.leads_on([chain.pipelines[index], *_passed_over(chain, done)]):
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
        if self._question and isinstance(holder, Compound) and holder.kind == "(":
            self._tested = False  # errexit looks at a subshell's status, whatever made it
        return holder

    def _before(self, following: Chain, block: Block) -> Fate:
        """Of a statement with another one after it."""
        reader = _first(following)
        if reader is not None and reads_status(text_of(reader)):
            return self._read_by(reader)
        if self._question:
            return "tested" if self._scripts.has_errexit(block) and not self._tested else "ignored"
        return self._unused() if self._tested else "left"

    def _read_by(self, reader: Command) -> Fate:
        """Of a status that `$?` is, or was."""
        if self._dependents.takes_as_0(reader):
            return "said"
        if isinstance(reader, Compound) or is_question(reader):
            return self._given_to(reader)
        is_looked_at = any(self._value(substitution) == "tested" for substitution in self._printed_to(reader))
        depends = is_looked_at or self._dependents.on([reader]) or self._dependents.is_told(reader)
        return "tested" if depends else _saying([reader])

    def _printed_to(self, node: Node) -> Iterator[Substitution]:
        """The `$(...)` that give what a command prints, also where they call its function."""
        above = next((n for n in node.above() if isinstance(n, (Function, Substitution))), None)
        if isinstance(above, Substitution) and above.kind == "$(":
            yield above
        elif isinstance(above, Function) and self._dependents.is_new(f"$({above.name}"):
            for call in self._scripts.called(above.name):
                yield from self._printed_to(call)

    def _tested_by(self, compound: Compound, condition: Block) -> Fate:
        """Of the condition of an `if` or a loop."""
        index = next(i for i, block in enumerate(compound.conditions) if block is condition)
        return (
            "tested" if self._dependents.on([*compound.conditions[index + 1 :], *compound.bodies[index:]]) else "said"
        )

    def _out_of_script(self) -> "Node | Fate":
        if self._calls and self._calls[0].function == "source":
            source = self._scripts.called_at(self._calls.pop(0))
            if source is not None:
                return source
        return "tested" if self._left or self._question else self._unused()

    def _out_of_function(self, node: Node) -> "Node | Fate":
        function = next((n for n in (node, *node.above()) if isinstance(n, Function)), None)
        if function is None:
            return self._out_of_script()
        if self._question:
            name = function.name
            calls = self._scripts.called(name) if self._dependents.is_new(f"{name}()") else []
            return "tested" if any(self._dependents.is_asked(call) for call in calls) else "ignored"
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
        return self._given_to(substitution.parent)

    def _given_to(self, holder: Optional[Node]) -> Fate:
        """Of a status on which depends what the words of a command are."""
        depends = False
        if isinstance(holder, Compound):
            depends = self._dependents.on(holder.bodies)
        elif isinstance(holder, Simple):
            is_asking = holder.name in QUESTIONS
            depends = self._dependents.is_asked(holder) if is_asking else self._dependents.on([holder])
        return "tested" if depends else "said"


def _passed_over(chain: Chain, done: Iterable[Node]) -> Sequence[Node]:
    """The rest of a loop's body, if a `continue` skips it."""
    block = chain.parent
    if not isinstance(block, Block) or not any(c.name == "continue" for c in simple(done)):
        return []
    return block.chains[block.chains.index(chain) + 1 :]


def _names(node: Node, name: str) -> bool:
    """Whether a command is given a variable."""
    if isinstance(node, Compound):
        return any(names_variable(word.text, name) for word in node.words)
    return isinstance(node, Simple) and names_variable(node.text, name, bare=node.name in ("((", "[[", "let"))


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
