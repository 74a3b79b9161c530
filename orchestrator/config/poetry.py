"""Dependency groups as Poetry writes them: tables of names, with ranges of a form of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_RANGE = re.compile(r"(?P<kind>[\^~])\s*(?P<version>\d+(?:\.\d+)*)")


def groups(table: Mapping[str, Any]) -> dict[str, list[str]]:
    """The groups of `[tool.poetry]`, as requirements."""
    found = {name: _inner(group) for name, group in _items(table.get("group"))}
    found = {"dev": table.get("dev-dependencies"), **found}
    return {name: [_requirement(*item) for item in _items(group)] for name, group in found.items() if group}


def _inner(group: object) -> object:
    return group.get("dependencies") if isinstance(group, dict) else None


def _items(table: object) -> list[tuple[str, Any]]:
    return list(table.items()) if isinstance(table, dict) else []


def _requirement(name: str, value: object) -> str:
    """One that several ranges are given for has none here."""
    told: Mapping[str, object] = value if isinstance(value, dict) else {"version": value}
    place = told.get("git") or told.get("url") or told.get("path")
    if place:
        return f"{name} @ {place}"
    extras, markers = told.get("extras"), told.get("markers")
    brackets = f"[{','.join(map(str, extras))}]" if isinstance(extras, list) else ""
    return f"{name}{brackets}{_range(told.get('version'))}{f' ; {markers}' if markers else ''}"


def _range(text: object) -> str:
    """`^1.2` is any 1 from 1.2 on, `~1.2` any 1.2; a bare version is exact."""
    if not isinstance(text, str) or "|" in text or text == "*":
        return ""
    match = _RANGE.fullmatch(text)
    if not match:
        return f"=={text}" if text[:1].isdigit() else "" if _RANGE.search(text) else text
    parts = match["version"].split(".")
    leading = 2 if match["kind"] == "~" or parts[0] == "0" else 1
    return f">={match['version']},=={'.'.join(parts[:leading])}.*"
