"""Documents that are almost right: a valid one with keys dropped, renamed, retyped, repeated, and its text damaged."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import strategies as st

# What one meets where another thing was expected.
_VALUES = [
    *(None, True, False, 0, -1, 1, 1 << 70, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        " ",
        "0",
        "x" * 5000,
        "a\0b",
        "a\nb",
        "a\r\nb",
        "\x1b[31m",
        "[red]",
        "<script>",
        "| ` * |",
        "\ud800",
        "\udcff",
    ),
    *(
        "../../x",
        "/etc/passwd",
        "..",
        "C:\\x",
        "é",
        "\u202e",
        "😀",
        "NaN",
        "1e999",
        "2026-99-99",
        "yes",
        "{",
        "{0}",
        "%s",
    ),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": 1}}, ["x"] * 200, {str(n): n for n in range(200)}),
]
values = st.sampled_from(_VALUES).map(copy.deepcopy)
# A name that stands for nesting deeper than any reader's stack.
_DEEP = "@deep@"

Document = Any


@st.composite
def mutated(draw: st.DrawFn, document: Document) -> Document:
    """`document` with one to four changes in its structure."""
    changed = {"": copy.deepcopy(document)}
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(changed))
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        draw(st.sampled_from(_CHANGES))(draw, holder, key)
        if "" not in changed:
            return draw(values)
    return changed[""]


def _places(node: Any) -> Any:
    """Every (container, key) below `node`."""
    stack = [node]
    while stack:
        at = stack.pop()
        for key, value in at.items() if isinstance(at, dict) else enumerate(at) if isinstance(at, list) else ():
            yield at, key
            stack.append(value)


def _drop(draw: st.DrawFn, holder: Any, key: Any) -> None:
    del holder[key]


def _replace(draw: st.DrawFn, holder: Any, key: Any) -> None:
    holder[key] = draw(values)


def _deepen(draw: st.DrawFn, holder: Any, key: Any) -> None:
    holder[key] = draw(st.sampled_from([[holder[key]], {"x": holder[key]}, str(holder[key]), _DEEP]))


def _rename(draw: st.DrawFn, holder: Any, key: Any) -> None:
    if isinstance(holder, dict) and key != "":
        new = draw(st.sampled_from(["", f"{key}s", str(key).upper(), "x" * 300, "a\nb", "__class__", "\ud800"]))
        holder[new] = holder.pop(key)


def _add(draw: st.DrawFn, holder: Any, key: Any) -> None:
    if isinstance(holder, list):
        holder.insert(key, draw(st.sampled_from([copy.deepcopy(holder[key]), draw(values)])))
    elif key != "":
        holder[draw(st.sampled_from(["x", "name", "path", "env", "files"]))] = draw(values)


_CHANGES: list[Callable[[st.DrawFn, Any, Any], None]] = [_drop, _replace, _replace, _deepen, _rename, _add]


def as_json(document: Document) -> str:
    """JSON, with what Python adds to it (NaN) and nesting where it was asked for."""
    return json.dumps(document).replace(f'"{_DEEP}"', "[" * 100_000 + "]" * 100_000)


def as_yaml(document: Document) -> str:
    """YAML; what occurs twice becomes an anchor."""
    try:
        text = yaml.safe_dump(document, allow_unicode=True)
    except ValueError:  # an integer too long to be written in decimal
        text = "x: 1" + "0" * 5000
    return text.replace(_DEEP, "[" * 5000 + "]" * 5000)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> bytes:
    """`text` as bytes, most often as it is, else damaged as files are."""
    data = text.encode("utf-8", "surrogatepass")
    kind = draw(st.integers(0, 15))
    at = draw(st.integers(0, len(data)))
    if kind == 0:
        return b"\xef\xbb\xbf" + data
    if kind == 1:
        return data.replace(b"\n", b"\r\n")
    if kind == 2:
        return data[:at]
    if kind == 3:
        return data[:at] + draw(st.binary(max_size=8)) + data[at:]
    if kind == 4:
        return data + data
    if kind == 5:
        return text.encode("utf-16", "surrogatepass")
    if kind == 6:
        return data[:at] + b"\0" + data[at:]
    return data


noise = st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))


def documents(document: Document, render: Callable[[Document], str] = as_json) -> st.SearchStrategy[bytes]:
    """Files that were once `document`: noise, structural changes, damaged text."""
    almost = st.one_of(mutated(document), st.just(document)).map(render).flatmap(damaged)
    return st.one_of(almost, almost, almost, almost, noise)
