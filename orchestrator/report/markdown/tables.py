"""Markdown's building blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from orchestrator.text import indented, markdown

# For viewers that know no blocks of code.
_TAG = re.compile(
    r"<(?=/?(?:a|base|body|embed|form|html|iframe|img|input|link|meta|object|script|style|svg|video)\b)", re.IGNORECASE
)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def without_empty(header: Sequence[str], rows: Sequence[Sequence[str]], *, keep: int) -> str:
    """A table without those columns, after the first `keep`, that hold nothing in any row."""
    shown = [n for n in range(len(header)) if n < keep or any(row[n] not in ("", "-") for row in rows)]
    return table([header[n] for n in shown], [[row[n] for n in shown] for row in rows])


def code(lines: Iterable[str]) -> str:
    """A block of code; none of its lines can end it, nor be taken for an image or HTML that does something."""
    return "\n".join("    " + _TAG.sub("<\\\\", indented(line)).replace("![", "!\\[") for line in lines)


def link(text: str, path: str) -> str:
    """To a file of the run's directory."""
    return f"[{markdown(text)}]({quote(path)})"
