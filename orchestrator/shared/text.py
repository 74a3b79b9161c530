"""Text from a stage is data: made harmless and short before it is shown or put into a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

_TRACEBACK = b"Traceback (most recent call last):"
# What Python says, without a traceback, of a program that did not even begin, or that broke the interpreter.
_NO_START = re.compile(
    rb"(?:Syntax|Indentation|Tab)Error: |Fatal Python error: |"
    rb"\S*python\S*: (?:can't open file |can't find '__main__' |No module named |Error while finding module )"
)
_LONGEST_LINE = 1 << 20
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def plain(text: object, limit: int = 300) -> str:
    """One printable line of at most `limit` characters: no escape codes, control, format or surrogate characters."""
    line = "".join(c if c.isprintable() else " " for c in _ESCAPES.sub("", str(text)))
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def last_line(output: bytes, limit: int = 300) -> str:
    """The last line of `output` that shows something; of a line that was overwritten in place, its last state."""
    for line in reversed(re.split(r"[\r\n]+", output.decode("utf-8", "replace"))):
        shown = plain(line, limit)
        if shown:
            return shown
    return ""


def shows(piece: bytes) -> bool:
    """Whether `piece` holds anything that a reader sees: more than blanks, control characters and escape codes."""
    return bool(plain(piece.decode("utf-8", "replace")))


def python_error(f: BinaryIO) -> str | None:
    """What in `f` says that a Python program failed, as a phrase; exceptions that Python itself ignores do not."""
    before = b""
    shown = False  # a traceback whose last line is to come
    for line in iter(lambda: f.readline(_LONGEST_LINE), b""):
        if shown and line[:1] not in (b" ", b"\n", b"\r"):
            if not line.startswith(b"BrokenPipeError: "):  # what it writes to has read enough
                return "a Python traceback"
            shown = False
        if _TRACEBACK in line and not before.startswith(b"Exception ignored"):
            shown = True
        if _NO_START.match(line):
            return f"Python's {plain(line.decode('utf-8', 'replace'), 120)!r}"
        before = line
    return "a Python traceback" if shown else None


def listing(names: Iterable[str], most: int = 3) -> str:
    """'a, b, c and 4 more'."""
    shown = [plain(name, 80) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def alternatives(names: Iterable[str]) -> str:
    """'a, b or c'."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def count(number: int, noun: str) -> str:
    """'1 test', '2 tests'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
