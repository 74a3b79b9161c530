"""The lines of a stage's `shell`: the command that runs them, and the commands in them that can be told by reading."""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Iterator
from typing import NamedTuple

BASH = ("bash", "-euo", "pipefail", "-c")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN = re.compile(r"[\w./{},=:@%+\[\]-]+")
# What makes it uncertain whether, or where, the commands after it run.
_ENDS = frozenset(
    "if for while until case select function { ( [[ [ test cd pushd exec eval source . git mkdir trap".split()
)


class Command(NamedTuple):
    """Its `words` up to the first that is not plain: a variable, a pattern, what a redirection goes to.

    From there on words are the `rest`.
    """

    words: list[str]
    rest: list[str]


def argv(text: str) -> list[str]:
    """The command that runs the lines, which end with the first that fails."""
    return [*BASH, text]


def commands(text: str) -> Iterator[Command]:
    """The commands that run in any case, from the top to the first line of which that is not certain."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # a quotation that goes on
            return
        if not (yield from _of_line(words)):
            return


def _of_line(words: list[str]) -> Generator[Command, None, bool]:
    """The commands of one line; whether the next one is as certain."""
    found: list[str] = []
    rest: list[str] = []
    plain = True
    for word in [*words, ";"]:
        if word in (";", "|", "&", "&&"):
            if found and found[0] in _ENDS:
                return False
            if found:
                yield Command(found, rest)
            found, rest, plain = [], [], True
        elif set(word) <= set("();<>|&"):
            if "<<" in word or word[0] in "(|":  # a here document, a subshell, an alternative
                if found and found[0] not in _ENDS:
                    yield Command(found, rest)
                return False
            if found and found[-1].isdigit():  # the descriptor of a redirection
                found.pop()
            plain = False
        elif not found and _ASSIGNMENT.match(word):
            continue
        elif plain and (_PLAIN.fullmatch(word) or not found):
            found.append(word)
        else:
            rest.append(word)
            plain = False
    return True
