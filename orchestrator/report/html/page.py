"""A document -> HTML: built as a tree, so that no text of a pod can be anything but text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from urllib.parse import quote
from xml.etree import ElementTree as ET

from orchestrator import __version__
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
from orchestrator.text import indented, plain
from orchestrator.verdict.status import MEANINGS, OUTCOMES, Colour, Status, Verdict

_LONGEST = 500
_SHORT = 32
# Should a text ever become more than text: it may load nothing and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render(document: Document, base: str = "") -> str:
    """The page; its links lead to files below `base`, relative to where the page is read."""
    html = _Page(base).of(document)
    return "<!doctype html>\n" + ET.tostring(html, encoding="unicode", method="html") + "\n"


class _Page:
    """The elements of one page."""

    def __init__(self, base: str) -> None:
        self._base = f"{base.rstrip('/')}/" if base else ""

    def of(self, document: Document) -> ET.Element:
        title = plain(document.title, _LONGEST)
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", **{"http-equiv": "Content-Security-Policy", "content": _POLICY}),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="generator", content=f"nsa-pod {__version__}"),
            tag("link", rel="icon", href="data:,"),
            tag("title", title),
            tag("style", files(__package__).joinpath("style.css").read_text()),
        )
        sections = [(f"s{number}", section) for number, section in enumerate(document.sections, start=1)]
        links = [tag("li", tag("a", plain(section.title), href=f"#{name}")) for name, section in sections]
        header = tag(
            "header", tag("h1", title), *map(self._block, document.lead), **{"class": _class(document.verdict)}
        )
        main = tag("main", header, *(self._section(name, section) for name, section in sections), id="main")
        contents = tag("nav", tag("ul", *links), **{"aria-label": "Contents"})
        skip = tag("a", "Skip to the report", href="#main", **{"class": "skip"})
        return tag("html", head, tag("body", skip, contents, main), lang="en")

    def _section(self, name: str, section: Section) -> ET.Element:
        heading = tag("h2", plain(section.title), id=f"{name}-h")
        found = tag("section", heading, id=name, **{"aria-labelledby": f"{name}-h"})
        charts: ET.Element | None = None
        for block in section.blocks:
            if not isinstance(block, Chart):
                charts = None
                found.append(self._block(block))
                continue
            if charts is None:  # charts that follow each other stand side by side
                charts = ET.SubElement(found, "div", {"class": "charts"})
            charts.append(self._block(block))
        return found

    def _block(self, block: Block) -> ET.Element:
        match block:
            case Paragraph(text):
                return tag("p", *self._inline(text))
            case Subheading(text):
                return tag("h3", plain(text, _LONGEST))
            case Bullets(items):
                return tag("ul", *(tag("li", *self._inline(item)) for item in items))
            case Facts(rows):
                pairs = ((tag("dt", plain(name)), tag("dd", *self._inline(text))) for name, text in rows)
                return tag("dl", *(element for pair in pairs for element in pair))
            case Lines(lines):
                text = "\n".join(map(indented, lines))
                return tag("pre", tag("code", text), tabindex="0", role="group", **{"aria-label": "Code or output"})
            case Table(header, rows):
                return self._table(header, rows)
            case Chart():
                return _figure(block)

    def _table(self, header: Sequence[str], rows: Iterable[Sequence[Inline]]) -> ET.Element:
        head = tag("tr", *(tag("th", plain(name, _LONGEST), scope="col") for name in header))
        body = [tag("tr", *(tag("td", *self._inline(cell), **_cell_class(cell)) for cell in row)) for row in rows]
        table = tag("table", tag("thead", head), tag("tbody", *body))
        name = plain(", ".join(header), 120)
        return tag("div", table, tabindex="0", role="group", **{"class": "table", "aria-label": f"Table: {name}"})

    def _inline(self, text: Inline) -> list[str | ET.Element]:
        return [self._span(span) for span in spans(text)]

    def _span(self, span: Span) -> str | ET.Element:
        match span:
            case str(text):
                return with_blanks(text, lambda text: plain(text, _LONGEST))
            case Link(text, path):
                return tag("a", plain(text, _LONGEST), href=quote(self._base + path))
            case Code(text):
                return tag("code", plain(text, _LONGEST))
            case Strong(text):
                return tag("strong", plain(text, _LONGEST))
            case Badge(status):
                return tag("span", status.replace("_", " "), **{"class": f"badge {_class(status)}"})


def tag(name: str, /, *children: str | ET.Element, **attributes: str) -> ET.Element:
    """An element with its children, texts among them."""
    element = ET.Element(name, attributes)
    last: ET.Element | None = None
    for child in children:
        if isinstance(child, ET.Element):
            element.append(child)
            last = child
        elif last is None:
            element.text = (element.text or "") + child
        else:
            last.tail = (last.tail or "") + child
    return element


def _figure(chart: Chart) -> ET.Element:
    from orchestrator.report.html import plots  # takes a third of a second, and most commands draw nothing

    caption = tag("figcaption", plain(chart.title, _LONGEST))
    notes = [tag("p", plain(line, _LONGEST)) for line in plots.captions(chart)]
    return tag("figure", caption, plots.svg(chart), *notes)


def _class(status: Status | Verdict | None) -> str:
    """Its colour; none for what has no verdict."""
    colours: dict[str, Colour] = {name: meaning.colour for name, meaning in MEANINGS.items()}
    colours.update({name: outcome.colour for name, outcome in OUTCOMES.items()})
    return colours[status] if status else ""


def _cell_class(cell: Inline) -> dict[str, str]:
    """Numbers stand under each other, what is short stays in one line, what is long may be broken."""
    if not isinstance(cell, str):
        return {}
    return {"class": "number" if _is_number(cell) else "short" if len(cell) <= _SHORT else "long"}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
