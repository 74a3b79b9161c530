"""Text: it shows something, holds what it must, and nothing that it must not."""

from __future__ import annotations

from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, NewType, Optional, TypedDict

from orchestrator.shared.schema import RULES
from orchestrator.shared.text import plain, shows
from orchestrator.verdict.artifacts.kind import Finding, Kind

_PIECE = 1 << 16

Phrase = NewType("Phrase", str)
RULES[Phrase] = lambda phrase: None if phrase else "expected text, got none"


class Asks(TypedDict, total=False):
    """Phrases that must stand in the text, letter by letter, and phrases that must not."""

    contains: List[Phrase]
    lacks: List[Phrase]


def _read(asked: Mapping[str, Any], f: BinaryIO) -> Iterator[Finding]:
    wanted, unwanted = (list(asked.get(key) or ()) for key in ("contains", "lacks"))
    found: Dict[str, bool] = dict.fromkeys([*wanted, *unwanted], False)
    blank = True
    for piece in _pieces(f, max((len(phrase.encode()) for phrase in found), default=0)):
        blank = blank and not shows(piece)
        if not blank and not found:
            return
        found.update((phrase, True) for phrase, seen in found.items() if not seen and phrase.encode() in piece)
    if blank:
        yield Finding("is empty" if f.tell() == 0 else "is blank")
    missing = _first(phrase for phrase in wanted if not found[phrase])
    if missing:
        yield Finding(f"does not contain {missing}")
    forbidden = _first(phrase for phrase in unwanted if found[phrase])
    if forbidden:
        yield Finding(f"contains {forbidden}, which it must not")


def _pieces(f: BinaryIO, overlap: int) -> Iterator[bytes]:
    """The file in pieces, each with the last `overlap` bytes of the one before it."""
    end = b""
    for piece in iter(lambda: f.read(_PIECE), b""):
        yield end + piece
        end = (end + piece)[-overlap:] if overlap else b""


def _first(phrases: Iterator[str]) -> Optional[str]:
    return next((repr(plain(phrase, 80)) for phrase in phrases), None)


KIND = Kind("text", Asks, _read)
