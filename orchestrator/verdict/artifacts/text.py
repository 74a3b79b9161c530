"""Text, or any file: it shows something, holds what it must, and nothing that it must not."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, NewType, Optional, TypedDict

from orchestrator.shared.packed import is_packed, unpacked
from orchestrator.shared.schema import RULES
from orchestrator.shared.text import count, plain, shows, without_escapes
from orchestrator.verdict import closing_lines, junit
from orchestrator.verdict.artifacts.arrays import holds_no_number
from orchestrator.verdict.artifacts.cells import says_not_done, shown
from orchestrator.verdict.artifacts.kind import Finding, Kind

_PIECE = 1 << 16
_JUNIT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<testsuites?\b")
_TAP = re.compile(rb"TAP version \d+\r?\n|1\.\.\d+\r?\n(?:not )?ok\b")
_ENCODINGS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))

Phrase = NewType("Phrase", str)
RULES[Phrase] = lambda phrase: None if phrase else "expected text, got none"


class Asks(TypedDict, total=False):
    """Phrases that must stand in the text, letter by letter, and phrases that must not."""

    contains: List[Phrase]
    lacks: List[Phrase]


def _read(asked: Mapping[str, Any], f: BinaryIO) -> Iterator[Finding]:
    wanted, unwanted = (list(asked.get(key) or ()) for key in ("contains", "lacks"))
    found: Dict[str, bool] = dict.fromkeys([*wanted, *unwanted], False)
    start = f.read(_PIECE)
    inside = unpacked(f, start, _PIECE)
    if inside is not None and not shows(inside):
        yield Finding("is compressed, and blank inside", since=2)
    if found and is_packed(start):
        yield Finding("is compressed, expected text in which phrases can be looked for", since=2)
    is_meant = any(map(says_not_done, wanted))
    if len(start) < _PIECE and not is_meant and says_not_done(plain(_text(start, start))):
        yield Finding(f"holds no more than {shown(plain(_text(start, start)))}, expected what was done", since=2)
    if not is_meant and _JUNIT.match(start):
        yield from _of_junit(f)
    elif not is_meant and _TAP.match(start):
        yield from _of_tap(f)
    elif holds_no_number(f):
        yield Finding("holds no number, or none but NaN, expected what was computed", since=2)
    f.seek(0)
    blank = True
    for piece in _pieces(f, max((_room(phrase) for phrase in found), default=0)):
        blank = blank and not shows(piece)
        if not blank and not found:
            return
        text = _text(piece, start)
        seen = f"{text}\0{without_escapes(text)}" if "\x1b" in text else text
        found.update((phrase, True) for phrase in found if phrase in seen)
    if blank:
        yield Finding("is empty" if f.tell() == 0 else "is blank")
    missing = _first(phrase for phrase in wanted if not found[phrase])
    if missing:
        yield Finding(f"does not contain {missing}")
    forbidden = _first(phrase for phrase in unwanted if found[phrase])
    if forbidden:
        yield Finding(f"contains {forbidden}, which it must not")


def _of_junit(f: BinaryIO) -> Iterator[Finding]:
    """What a runner of tests has written that does not say so by its exit code."""
    f.seek(0)
    try:
        outcomes = Counter(case.outcome for case in junit.parse(f))
    except junit.Malformed as e:
        yield Finding(str(e), since=2)
        return
    bad = outcomes["failed"] + outcomes["error"]
    if bad:
        yield Finding(f"says that {count(bad, 'test')} failed", since=2)
    elif not outcomes["passed"]:
        yield Finding("says that no test passed", since=2)


def _of_tap(f: BinaryIO) -> Iterator[Finding]:
    """The same of a file of the Test Anything Protocol."""
    f.seek(0)
    for closing in closing_lines.tap(f.read().decode("utf-8", "replace").replace("\r\n", "\n")):
        if closing.failed:
            yield Finding(f"says that a test failed: {plain(closing.failed, 120)}", since=2)
        elif not closing.ran:
            yield Finding("says that no test passed", since=2)


def _pieces(f: BinaryIO, overlap: int) -> Iterator[bytes]:
    """The file in pieces, each with the last `overlap` bytes of the one before it."""
    end = b""
    for piece in iter(lambda: f.read(_PIECE), b""):
        yield end + piece
        end = (end + piece)[-overlap:] if overlap else b""


def _room(phrase: str) -> int:
    """Bytes that a phrase may take, with escape codes in it; an even number, as UTF-16 has them."""
    return 4 * len(phrase) + 128


def _text(piece: bytes, start: bytes) -> str:
    encoding = next((name for mark, name in _ENCODINGS if start.startswith(mark)), "utf-8")
    return piece.decode(encoding, "replace")


def _first(phrases: Iterator[str]) -> Optional[str]:
    return next((repr(plain(phrase, 80)) for phrase in phrases), None)


KIND = Kind("text", Asks, _read)
