"""A document as Markdown. Charts are not shown: their numbers stand in the tables, or in the files that these link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from orchestrator.report.document import (
    Badge,
    Block,
    Bullets,
    Chart,
    Code,
    Document,
    Facts,
    Inline,
    Lines,
    Link,
    Paragraph,
    Section,
    Span,
    Strong,
    Subheading,
    Table,
    spans,
    with_blanks,
)
from orchestrator.text import indented, markdown

# For viewers that know no blocks of code.
_TAG = re.compile(
    r"<(?=/?(?:a|base|body|embed|form|html|iframe|img|input|link|meta|object|script|style|svg|video)\b)", re.IGNORECASE
)


def render(document: Document) -> str:
    """The whole document."""
    parts = [f"# {markdown(document.title)}", blocks(document.lead), *map(section, document.sections)]
    return "\n\n".join(part for part in parts if part) + "\n"


def section(of: Section | None) -> str:
    """Empty for one that has nothing to show here: no more than charts, and sentences about them."""
    kinds = {type(block) for block in of.blocks} if of else set()
    body = blocks(of.blocks) if of and not {Chart} <= kinds <= {Chart, Paragraph} else ""
    return f"## {markdown(of.title)}\n\n{body}" if of and body else ""


def blocks(of: Iterable[Block]) -> str:
    return "\n\n".join(filter(None, map(_block, of)))


def inline(text: Inline) -> str:
    return "".join(map(_span, spans(text)))


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return inline(text)
        case Subheading(text):
            return f"### {markdown(text)}"
        case Bullets(items):
            return "\n".join(f"- {inline(item)}" for item in items)
        case Facts(rows):
            return "\n".join(f"- {markdown(name)}: {inline(text)}" for name, text in rows)
        case Lines(lines):
            return "\n".join(map(_code, lines))
        case Table(header, rows):
            return _table(header, rows)
        case Chart():
            return ""


def _span(span: Span) -> str:
    match span:
        case str(text):
            return with_blanks(text, markdown)
        case Link(text, path):
            return f"[{markdown(text)}]({quote(path)})"
        case Code(text):
            return f"`{markdown(text)}`"
        case Strong(text):
            return f"**{markdown(text)}**"
        case Badge(status):
            return status if status == "passed" else f"**{status}**"


def _table(header: Sequence[str], rows: Iterable[Sequence[Inline]]) -> str:
    lines: list[Sequence[str]] = [[markdown(name) for name in header], ["---"] * len(header)]
    lines += [[inline(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _code(line: str) -> str:
    """A line of a block of code that cannot end it, nor be taken for an image or HTML that does something."""
    return "    " + _TAG.sub("<\\\\", indented(line)).replace("![", "!\\[")
