"""A report as data: sections of paragraphs, tables, code and charts, which Markdown, HTML and a pull request show.

What stands here is text as it came: each form escapes it for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from orchestrator.verdict.status import Status, Verdict

T = TypeVar("T")


@dataclass(frozen=True)
class Link:
    """To a file; `path` is relative to what the document is of: a run's directory."""

    text: str
    path: str


@dataclass(frozen=True)
class Code:
    """A name, a hash: in a line."""

    text: str


@dataclass(frozen=True)
class Strong:
    text: str


@dataclass(frozen=True)
class Badge:
    """A status or a verdict, in its colour."""

    status: Status | Verdict


Span = str | Link | Code | Strong | Badge
Inline = Span | tuple[Span, ...]


@dataclass(frozen=True)
class Paragraph:
    text: Inline


@dataclass(frozen=True)
class Subheading:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: tuple[Inline, ...]


@dataclass(frozen=True)
class Facts:
    """Names with what is to be said of each."""

    rows: tuple[tuple[str, Inline], ...]


@dataclass(frozen=True)
class Lines:
    """Code, or output: line by line as it was."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[tuple[Inline, ...], ...]


@dataclass(frozen=True)
class Series:
    """Points, from left to right; `spread` has the lower and the upper end of each, where they are known.

    Where y is None the line is broken.
    """

    name: str
    points: tuple[tuple[float, float | None], ...]
    spread: tuple[tuple[float, float], ...] = ()


ChartKind = Literal["lines", "points", "stack"]


@dataclass(frozen=True)
class Chart:
    """Series over one axis: `lines`, `points`, or what adds up in a `stack`; `labels` are words for x, `marks` places
    with something to say of them; `spread` says what the series' spreads are.
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    kind: ChartKind = "lines"
    labels: tuple[tuple[float, str], ...] = ()
    marks: tuple[tuple[float, str], ...] = ()
    spread: str = "where the middle three fifths of the samples lie"


Block = Paragraph | Subheading | Bullets | Facts | Lines | Table | Chart


@dataclass(frozen=True)
class Section:
    """A part of a document, below its own heading."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """`lead` is what comes first of all; `verdict` gives it its colour, None for what has none."""

    title: str
    verdict: Verdict | None
    lead: tuple[Block, ...]
    sections: tuple[Section, ...]


def spans(inline: Inline) -> tuple[Span, ...]:
    return inline if isinstance(inline, tuple) else (inline,)


def joined(parts: Iterable[Inline], by: str = ", ") -> tuple[Span, ...]:
    """The parts in one line."""
    found: list[Span] = []
    for part in parts:
        found += [by, *spans(part)] if found else spans(part)
    return tuple(found)


def section(title: str, *blocks: Block | None) -> Section | None:
    """The section of those blocks that are there; None if none is."""
    there = tuple(block for block in blocks if block is not None)
    return Section(title, there) if there else None


def bullets(items: Iterable[Inline]) -> Bullets | None:
    """None for none."""
    found = tuple(items)
    return Bullets(found) if found else None


def without_empty(header: Sequence[str], rows: Sequence[Sequence[Inline]], *, keep: int) -> Table:
    """A table without those columns, after the first `keep`, that hold nothing in any row."""
    shown = [n for n in range(len(header)) if n < keep or any(row[n] not in ("", "-", ()) for row in rows)]
    return Table(tuple(header[n] for n in shown), tuple(tuple(row[n] for n in shown) for row in rows))


def with_blanks(text: str, escape: Callable[[str], str]) -> str:
    """A piece of a line, escaped, with the blanks at its ends that `escape` takes for none."""
    body = escape(text)
    before, after = (" " if text[at].isspace() else "" for at in (0, -1)) if text else ("", "")
    return f"{before}{body}{after}" if body else before


def replaced(value: T, change: Callable[[Any], Any]) -> T:
    """A document, or a part of one, with every text, span and block in it changed: what is inside comes first."""
    inner: Any = value
    if isinstance(value, tuple):
        return tuple(replaced(part, change) for part in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, (type, Badge)):
        inner = replace(value, **{field.name: replaced(getattr(value, field.name), change) for field in fields(value)})
    changed: T = change(inner)
    return changed


def with_text(value: T, change: Callable[[str], str]) -> T:
    """A document, or a part of one, with every text in it changed."""
    return replaced(value, lambda part: change(part) if isinstance(part, str) else part)
