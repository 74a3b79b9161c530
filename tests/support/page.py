"""A page of HTML as its elements, read by the standard library's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "hr", "img"}


@dataclass
class Element:
    """An element of the page, with what lies inside; `line` is where it begins."""

    tag: str
    attributes: dict[str, str]
    parts: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    def all(self, *tags: str) -> list[Element]:
        """Those inside, at any depth, in order; all of them if no tag is named."""
        found: list[Element] = []
        for part in self.parts:
            if isinstance(part, Element):
                found += [part] if not tags or part.tag in tags else []
                found += part.all(*tags)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        assert len(element.attributes) == len(attrs), f"<{tag}> has an attribute twice"
        self.open[-1].parts.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)


def read(text: str) -> Element:
    """The page; AssertionError where an element is not ended, or another one is."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1, f"<{reader.open[-1].tag}> is not ended"
    return reader.root
