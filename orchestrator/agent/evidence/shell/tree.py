"""The parts of a shell script: which command stands in which list, condition, function or substitution."""

from __future__ import annotations

import re
from typing import Iterator, List, Optional, Sequence, Tuple

_UNQUOTED = re.compile(r"[\\'\"]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Node:
    """A part of a script, in the part that is its `parent`, from `line` on; None above a script."""

    parent: Optional[Node] = None
    line = 0

    def parts(self) -> Iterator[Node]:
        """The parts below it that are next to it."""
        return iter(())

    def above(self) -> Iterator[Node]:
        """The parts that it stands in, the innermost first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[Node]:
        """It, and all below."""
        yield self
        for part in self.parts():
            yield from part.walk()


class Substitution(Node):
    """`$(...)`, a backquote, `<(...)` or `>(...)`: the `block`, and how its word begins as `kind`."""

    def __init__(self, kind: str, block: Block) -> None:
        self.kind, self.block = kind, block
        block.parent = self

    def parts(self) -> Iterator[Node]:
        yield self.block


class Word:
    """A word as it is written, and the substitutions in it."""

    def __init__(self, text: str, inside: Sequence[Substitution]) -> None:
        self.text, self.inside = text, inside

    @property
    def literal(self) -> str:
        """Its text without quotes."""
        return _UNQUOTED.sub("", self.text)


class Command(Node):
    """What may be a member of a pipeline; `redirects` are the words of its redirections, and its here-documents."""

    redirects: List[Word]

    def words_with_substitutions(self) -> Iterator[Word]:
        yield from self.redirects

    def blocks(self) -> Iterator[Node]:
        return iter(())

    def parts(self) -> Iterator[Node]:
        for word in self.words_with_substitutions():
            yield from word.inside
        yield from self.blocks()


class Simple(Command):
    """A simple command; also `[[ ... ]]` and `((...))`, whose second word is what stands inside.

    `given` are scripts that it has as a word or a here-document: of `eval`, `trap`, `bash <<END`.
    """

    def __init__(self, line: int) -> None:
        self.line = self.last_line = line
        self.assignments: List[Tuple[str, Word]] = []
        self.words: List[Word] = []
        self.redirects = []
        self.given: List[Block] = []

    @property
    def name(self) -> str:
        """The program, function or builtin; blank if it only assigns."""
        words = _carried([word.literal for word in self.words])
        return re.sub("^/(usr/)?bin/", "", words[0]) if words else ""

    @property
    def key(self) -> str:
        """Its assignments and words, without what may be written in several ways."""
        return condensed("".join(word.text for word in [*(word for _, word in self.assignments), *self.words]))

    @property
    def text(self) -> str:
        """All that it is made of, with its redirections."""
        words = [*(word for _, word in self.assignments), *self.words, *self.redirects]
        return " ".join(word.text for word in words)

    def words_with_substitutions(self) -> Iterator[Word]:
        yield from (word for _, word in self.assignments)
        yield from self.words
        yield from self.redirects

    def blocks(self) -> Iterator[Node]:
        return iter(self.given)


class Compound(Command):
    """A command of blocks: `if`, `while`, `for`, `case`, `{}`, `()`, in this order as `kind`.

    `conditions` are the blocks whose statuses it tests, each with that of `bodies` beside it which follows; an `else`
    has none. `words` are what a `for` goes through, or the word of a `case`, whose `patterns` stand beside its bodies.
    """

    def __init__(self, kind: str, line: int) -> None:
        self.kind, self.line = kind, line
        self.conditions: List[Block] = []
        self.bodies: List[Block] = []
        self.patterns: List[List[str]] = []
        self.words: List[Word] = []
        self.redirects = []

    def words_with_substitutions(self) -> Iterator[Word]:
        yield from self.words
        yield from self.redirects

    def blocks(self) -> Iterator[Node]:
        yield from self.conditions
        yield from self.bodies


class Function(Command):
    """The definition of a function."""

    def __init__(self, name: str, body: Command, line: int) -> None:
        self.name, self.body, self.line = name, body, line
        self.redirects = []
        body.parent = self

    def blocks(self) -> Iterator[Node]:
        yield self.body


class Pipeline(Node):
    def __init__(self, members: List[Command], negated: bool) -> None:
        self.members, self.negated = members, negated
        self.line = members[0].line
        for member in members:
            member.parent = self

    def parts(self) -> Iterator[Node]:
        return iter(self.members)


class Chain(Node):
    """Pipelines with `&&` and `||` between them."""

    def __init__(self, pipelines: List[Pipeline], operators: List[str]) -> None:
        self.pipelines, self.operators = pipelines, operators
        self.background = False
        for pipeline in pipelines:
            pipeline.parent = self

    def parts(self) -> Iterator[Node]:
        return iter(self.pipelines)


class Block(Node):
    """Chains, one after another. A script is one without a parent."""

    def __init__(self, chains: List[Chain]) -> None:
        self.chains = chains
        for chain in chains:
            chain.parent = self

    def parts(self) -> Iterator[Node]:
        return iter(self.chains)


def condensed(text: str) -> str:
    """Without what bash writes in its own way when it tells of a command."""
    return re.sub(r"[\s;]+", "", text)


def _carried(words: List[str]) -> List[str]:
    """The words from the program on, which `command`, `exec` or `env A=1` only starts."""
    while len(words) > 1 and words[0] in ("command", "builtin", "exec", "env"):
        rest = words[1:]
        while words[0] == "env" and rest and _ASSIGNMENT.match(rest[0]):
            rest = rest[1:]
        if not rest or (words[0] in ("exec", "env") and rest[0].startswith("-")):
            break
        words = rest
    return words
