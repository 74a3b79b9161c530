"""Text from a stage is data: made harmless and short before it is shown or put into a sentence."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import BinaryIO

_TRACEBACK = b"Traceback (most recent call last):"
NOT_BEGUN = (
    r"\S*python\S*: (?:can't open file |can't find '__main__' |No module named (?!pip$)|Error while finding module )"
)
"""What Python says of a program that it could not begin."""
# What it says without a traceback of one that did not even begin, or that broke the interpreter.
_NO_START = re.compile(rb"(?:Syntax|Indentation|Tab)Error: |Fatal Python error: |" + NOT_BEGUN.encode())
# A line of a log: who writes a traceback there has seen it, and goes on by choice.
_LOG_LINE = re.compile(rb".*\b(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b")
_TOLD_TO_END = (b"BrokenPipeError", b"KeyboardInterrupt")
_LONGEST_LINE = 1 << 20
LARGEST = 1e15
"""Of what is shown as a number; NaN is not smaller either."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def plain(text: object, limit: int = 300) -> str:
    """One printable line of at most `limit` characters: no escape codes, control, format or surrogate characters."""
    line = "".join(c if c.isprintable() else " " for c in without_escapes(str(text)))
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def indented(line: str, limit: int = 300) -> str:
    """`plain`, with the blanks that it begins with; empty if it shows nothing."""
    shown = plain(line, 300)
    blanks = line.expandtabs()[: limit // 4]
    return " " * (len(blanks) - len(blanks.lstrip(" "))) + shown if shown else ""


def without_escapes(text: str) -> str:
    """`text` without the codes that colour a terminal, move its cursor, name its window."""
    return _ESCAPES.sub("", text)


def last_line(output: bytes) -> str:
    """The last line of `output` that shows something; of a line that was overwritten in place, its last state."""
    for line in reversed(re.split(r"[\r\n]+", output.decode("utf-8", "replace"))):
        shown = plain(line, 300)
        if shown:
            return shown
    return ""


def shows(piece: bytes) -> bool:
    """Whether `piece` holds anything that a reader sees: more than blanks, control characters and escape codes."""
    return bool(plain(piece.decode("utf-8", "replace")))


def python_error(f: BinaryIO) -> str | None:
    """What in `f` says that a Python program failed, as a phrase.

    Not: exceptions that Python itself ignores, that a program logs, or that only say that nobody read on,
    or that somebody interrupted it, whose exit code tells more.
    """
    before = b""
    found = False
    for line in iter(lambda: f.readline(_LONGEST_LINE), b""):
        if _TRACEBACK in line and not before.startswith(b"Exception ignored") and not _LOG_LINE.match(before):
            found = True
        elif found and not line.startswith((b" ", b"\t")) and line.strip():
            if not line.startswith(_TOLD_TO_END):
                return "a Python traceback"
            found = False
        elif _NO_START.match(line):
            return f"Python's {plain(_shortened(line).decode('utf-8', 'replace'), 120)!r}"
        before = line
    return "a Python traceback" if found else None


def _shortened(line: bytes) -> bytes:
    """Without the folder of the program that the line begins with."""
    program, colon, rest = line.partition(b": ")
    return program.rpartition(b"/")[2] + colon + rest


def with_commit(text: str, commit: str) -> str:
    """`text` with {commit} and {commit7} replaced."""
    return text.replace("{commit}", commit).replace("{commit7}", commit[:7])


def listing(names: Iterable[str], most: int = 3) -> str:
    """'a, b, c and 4 more'."""
    shown = [plain(name, 80) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def wrong_expression(text: str) -> str | None:
    """What is wrong with a regular expression, as a sentence; None if nothing is.

    What Python only warns of (`[[x]`), naming a line of this file, is taken: compiled once, for all searches.
    """
    if not text:
        return "expected a regular expression, got none, which is found in everything"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(text)
    except (re.error, RecursionError, OverflowError) as e:
        return f"expected a regular expression: {plain(e, 80)}"
    return None


def alternatives(names: Iterable[str]) -> str:
    """'a, b or c'."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def count(number: int, noun: str) -> str:
    """'1 test', '2 tests'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(number: int) -> str:
    """A number of bytes for people."""
    value = float(min(number, LARGEST))
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
