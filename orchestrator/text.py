"""Text for people. What comes from a pod is data: nothing in it may steer a terminal or a report."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from orchestrator.shared.text import LARGEST, count, indented, listing, plain, size, without_escapes

__all__ = [
    "clock", "close_to", "count", "indented", "listing", "markdown", "nearest", "number", "plain", "printable",
    "seconds", "size",
]  # fmt: skip

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def close_to(name: str, known: Iterable[str]) -> list[str]:
    """Those of the names that may have been meant, the nearest first."""
    return difflib.get_close_matches(name, sorted(known))


def nearest(name: str, known: Iterable[str]) -> str:
    """': did you mean ...?' or the known names, ready to be appended to a sentence."""
    names = sorted(known)
    close = close_to(name, names)
    if close:
        return f": did you mean {' or '.join(close)}?"
    return f": known are {', '.join(names)}" if names else ": none is known"


def markdown(text: object) -> str:
    """`plain`, with everything that Markdown or HTML would interpret escaped."""
    return _MARKDOWN.sub(r"\\\1", plain(text, limit=500))


def printable(text: str) -> str:
    """`text` in its lines, without escape codes and what else steers a terminal."""
    return "".join(c for c in without_escapes(text) if c.isprintable() or c in "\n\r\t")


def number(value: object) -> float | None:
    """The finite number that a pod wrote; None for anything else."""
    return float(value) if type(value) in (int, float) and abs(value) < LARGEST else None  # type: ignore[arg-type]


def seconds(value: float | None) -> str:
    """A duration for people: 0.42 s, 12.3 s, 4 min 05 s, 1 h 02 min."""
    if value is None:
        return "-"
    if value < 100:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    return _minutes(value)


def clock(value: float) -> str:
    """A time that goes on, in whole seconds: 0 s, 59 s, 1 min 05 s, 1 h 02 min."""
    whole = round(max(value, 0.0))
    return f"{whole} s" if whole < 60 else _minutes(whole)


def _minutes(value: float) -> str:
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
