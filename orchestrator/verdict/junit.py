"""JUnit XML as pytest writes it, from a file that may be hostile: no document types, no entities, bounded size."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat

_MAX_BYTES = 256 << 20
_MAX_DEPTH = 20
_OUTCOMES = {"failure": "failed", "error": "error", "skipped": "skipped"}
# A testcase with several children is what the worst of them says.
_SEVERITY = ("passed", "skipped", "failed", "error")


class Malformed(Exception):
    """Not a JUnit file; the message is a clause that follows the file's name."""


@dataclass
class Case:
    """A testcase: its name as `case_key` gives it, its outcome, and the values of its `route.*` properties."""

    key: str
    outcome: str = "passed"
    routes: dict[str, list[str]] = field(default_factory=dict)


def parse(f: BinaryIO) -> list[Case]:
    """All testcases in `f`; Malformed if it is not whole JUnit XML."""
    cases: list[Case] = []
    open_tags: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if not open_tags and tag not in ("testsuites", "testsuite"):
            raise Malformed("is not JUnit XML")
        if len(open_tags) == _MAX_DEPTH:
            raise Malformed(f"is nested more than {_MAX_DEPTH} deep")
        open_tags.append(tag)
        if tag == "testcase":
            name = f"{attributes.get('classname', '')}.{attributes.get('name', '')}"
            cases.append(Case(_letters(name)))
        elif "testcase" in open_tags:
            _add_to(cases[-1], tag, attributes)

    def refuse(*_: object) -> None:
        raise Malformed("has a document type declaration")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda tag: open_tags.pop()
    parser.StartDoctypeDeclHandler = refuse
    _feed(parser, f)
    return cases


def case_key(node_id: str) -> str:
    """The key of the testcase that pytest writes for a node id.

    Only letters, digits, underscores and dots count, for JUnit files escape some of the others.
    """
    name, bracket, parameters = node_id.partition("[")
    file, *rest = name.split("::")
    module = re.sub(r"\.py$", "", file).replace("/", ".")
    return _letters(".".join([module, *rest]) + bracket + parameters)


def _feed(parser: expat.XMLParserType, f: BinaryIO) -> None:
    fed = 0
    try:
        for piece in iter(lambda: f.read(1 << 16), b""):
            fed += len(piece)
            if fed > _MAX_BYTES:
                raise Malformed(f"has more than {_MAX_BYTES} bytes")
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except expat.ExpatError as e:
        raise Malformed(f"is not whole XML: {e}") from e


def _add_to(case: Case, tag: str, attributes: dict[str, str]) -> None:
    if tag in _OUTCOMES:
        case.outcome = max(case.outcome, _OUTCOMES[tag], key=_SEVERITY.index)
    elif tag == "property" and attributes.get("name", "").startswith("route."):
        case.routes.setdefault(attributes["name"], []).append(attributes.get("value", ""))


def _letters(text: str) -> str:
    """But for dots in front: a file that is named as a module by itself (`--pyargs`) has no name in a node id."""
    return re.sub(r"[^\w.]", "", text).lstrip(".")
