"""The lines of a stage's `shell`: the command that runs them, and the commands in them that can be told by reading."""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Iterator

_BASH = ("bash", "-euo", "pipefail", "-c")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN = re.compile(r"[\w./{},=:@%+\[\]-]+")
# What makes it uncertain whether, or where, the commands after it run.
_ENDS = frozenset(
    "if for while until case select function { ( [[ [ test cd pushd exec eval source . git mkdir trap".split()
)


def argv(text: str) -> list[str]:
    """The command that runs the lines, which end with the first that fails."""
    return [*_BASH, text]


def commands(text: str) -> Iterator[list[str]]:
    """The commands that run in any case, from the top to the first line of which that is not certain, as plain words.

    A command ends where its words are no longer plain: at a variable, a redirection, a pattern.
    """
    for line in text.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # a quotation that goes on
            return
        if not (yield from _of_line(words)):
            return


def _of_line(words: list[str]) -> Generator[list[str], None, bool]:
    """The commands of one line; whether the next one is as certain."""
    found: list[str] = []
    plain = True
    for word in [*words, ";"]:
        if word in (";", "|", "&", "&&"):
            if found and found[0] in _ENDS:
                return False
            if found:
                yield found
            found, plain = [], True
        elif set(word) <= set("();<>|&"):
            if "<<" in word or word[0] in "(|":  # a here document, a subshell, an alternative
                if found and found[0] not in _ENDS:
                    yield found
                return False
            if found and found[-1].isdigit():  # the descriptor of a redirection
                found.pop()
            plain = False
        elif not found and _ASSIGNMENT.match(word):
            continue
        elif plain and (_PLAIN.fullmatch(word) or not found):
            found.append(word)
        else:
            plain = False
    return True
