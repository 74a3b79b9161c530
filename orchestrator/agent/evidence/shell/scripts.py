"""What a stage's scripts consist of: which command stands where, which function it calls, what it does."""

from __future__ import annotations

import re
from typing import Container, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from orchestrator.agent.evidence.shell.commands import (
    DECLARING,
    ENDING,
    QUESTIONS,
    READING,
    SAYING,
    is_local,
    only_prints,
    simple,
    words_given,
)
from orchestrator.agent.evidence.shell.syntax import Unparsable, parse
from orchestrator.agent.evidence.shell.tree import (
    Block,
    Chain,
    Compound,
    Function,
    Node,
    Pipeline,
    Simple,
    Substitution,
    condensed,
)


class Call(NamedTuple):
    """Where a function was called that ended with the status."""

    function: str
    file: str
    line: int


_DOING_NOTHING = (SAYING, QUESTIONS, DECLARING, READING, ENDING, ("let", "touch"))
_SOURCING = (".", "source")
_ON_FILES = ("rm", "cp", "mv")
_PREPARING = (*_ON_FILES, "cd", "pushd", "popd", "mkdir", "trap", "export", "eval", *_SOURCING, "exit", "return")
_FAILING = ("exit", "return")
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

    @property
    def texts(self) -> List[str]:
        return list(self._texts.values())

    def find(self, place: str, line: int, command: str) -> List[Simple]:
        """The commands in `line` of a text that look like `command`, which is as bash tells it; of those that are the
        same there, all. Where there is no such text they may be in any, such as a here-document.
        """
        told = condensed(command)
        for name in [place] if self._script(place) else list(self._texts):
            same = [s for s in self.commands(name) if s.key and _is_like(told, s.key)]
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

    def commands(self, name: str) -> List[Simple]:
        """Of the text of this name."""
        if name not in self._simple:
            script = self._script(name)
            self._simple[name] = [node for node in script.walk() if isinstance(node, Simple)] if script else []
        return self._simple[name]

    def function(self, name: str) -> Optional[Function]:
        if self._functions is None:
            scripts = filter(None, map(self._script, self._texts))
            self._functions = {n.name: n for s in scripts for n in s.walk() if isinstance(n, Function)}
        return self._functions.get(name)

    def sourced(self) -> List[str]:
        """The files that are read into the scripts, as these name them."""
        commands = (c for name in self.names for c in self.commands(name) if c.name in _SOURCING)
        return [c.words[1].literal for c in commands if len(c.words) > 1 and "$" not in c.words[1].text]

    def called(self, function: str) -> List[Simple]:
        """The calls of a function."""
        return [c for name in self._texts for c in self.commands(name) if c.name == function]

    def called_at(self, call: Call) -> Optional[Simple]:
        """The command that has called a function, by its name or as one of the arguments of another."""
        here = [c for c in self.commands(call.file) if c.line <= call.line <= c.last_line]
        names = (call.function, *_SOURCING) if call.function == "source" else (call.function,)
        by_name = (c for c in here if c.name in names)
        return next(by_name, None) or next((c for c in here if c.name.startswith("$")), None)

    def work(self, *, with_files: bool = False) -> Iterator[Tuple[str, Simple]]:
        """What all scripts are there for, each command with the script's name: not what they say, prepare, or ask in
        order to choose; `with_files` also what they do to files.
        """
        for name in self.names:
            for command in self.commands(name):
                prepares = self._prepares(command) and not (with_files and command.name in _ON_FILES)
                asks = command.name in QUESTIONS and _decides_alone(command)
                if asks or (self.does_something(command) and not prepares):
                    yield name, command

    def _prepares(self, command: Simple) -> bool:
        is_asked_for = command.name.startswith("-")  # `command -v`
        return is_asked_for or command.name in _PREPARING or self.function(command.name) is not None

    def has_errexit(self, node: Node) -> bool:
        """Whether a statement that fails ends the script that holds `node`."""
        script = root(node)
        sets = (c for c in script.walk() if isinstance(c, Simple) and c.name == "set")
        return any(re.search(r" -\w*e|errexit", c.text) for c in sets) or any(
            self._parsed.get(name) is script for name in self._errexit
        )

    def with_functions(self, commands: Iterable[Simple], inside: Tuple[str, ...] = ()) -> Iterator[Simple]:
        """The commands, and those of the functions that they call."""
        for command in commands:
            yield command
            function = None if command.name in inside else self.function(command.name)
            if function is not None:
                yield from self.with_functions(simple([function.body]), (*inside, command.name))

    def scopes(self, command: Node, variable: str = "") -> List[Node]:
        """Where a `variable` is seen that a command sets: in the subshell that it is in, of which `x | while read` is
        one, in the function that has it as its own, or in its script, which may be a part of others.
        """
        node = command
        for above in command.above():
            if isinstance(above, Function) and is_local(variable, above):
                return self._reached(above)
            is_last = isinstance(above, Pipeline) and above.members[-1] is node and self.called("shopt")
            is_piped = isinstance(above, Pipeline) and len(above.members) > 1 and not is_last
            is_forked = (isinstance(above, Compound) and above.kind == "(") or isinstance(above, Substitution)
            if is_piped or is_forked or (isinstance(above, Block) and isinstance(node, Chain) and node.background):
                return [node]
            node = above
        return list(filter(None, map(self._script, self._texts))) if self._sources_any() else [node]

    def _reached(self, function: Function) -> List[Node]:
        """A function, and those that it calls, which see its variables."""
        found = [function]
        for inside in found:
            called = (self.function(c.name) for c in inside.walk() if isinstance(c, Simple))
            found += [f for f in dict.fromkeys(called) if f is not None and f not in found]
        return [*found]

    def _sources_any(self) -> bool:
        if self._sources is None:
            self._sources = any(self.called(name) for name in _SOURCING)
        return self._sources

    # What their commands do ------------------------------------------------------------------------------------------

    def acts(self, nodes: Iterable[Node]) -> bool:
        """Whether there is a command in them that does something."""
        return any(map(self.does_something, simple(nodes)))

    def does_something(self, command: Simple, inside: Tuple[str, ...] = ()) -> bool:
        """Whether it does more than to say something, or to set a variable; `inside` are functions that it is in."""
        name = command.name
        if name in _FAILING:
            return len(command.words) > 1 and command.words[1].literal != "0"
        if not name or any(name in names for names in _DOING_NOTHING):
            return False
        function = self.function(name)
        if function is None:
            return not ((name == "eval" and command.given) or only_prints(command) or self._is_given_words(command))
        inside = (*inside, name)
        return inside.count(name) == 1 and any(self.does_something(c, inside) for c in simple([function.body]))

    def _is_given_words(self, command: Simple) -> bool:
        """Whether it is a shell with lines that do nothing."""
        given = words_given(command)
        try:
            return bool(given) and not self.acts([parse(given)])
        except Unparsable:
            return False

    def forbid(self, nodes: Iterable[Node]) -> bool:
        """Whether the script ends badly where they run."""
        return any(c.name == "exit" and self.does_something(c) for c in self.with_functions(simple(nodes)))


def _decides_alone(command: Simple) -> bool:
    """Whether it is a statement of its own, whose status is that of the script or ends it."""
    chain = command.parent and command.parent.parent
    block = chain and chain.parent
    around = block and block.parent
    is_condition = isinstance(around, Compound) and block in around.conditions
    return isinstance(chain, Chain) and len(chain.pipelines) == 1 and not is_condition


def root(node: Node) -> Node:
    return [node, *node.above()][-1]


def _is_like(told: str, key: str) -> bool:
    """Whether what bash tells of a command, with its redirections and perhaps cut, may be the one with this key."""
    return told.startswith(key) or (len(told) >= _CUT and key.startswith(told[:_CUT]))
