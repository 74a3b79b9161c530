"""Patterns of files in a tree: `*` and `?` stay in a folder, `**` is any number of them, a folder is all in it."""

from __future__ import annotations

import re
from typing import Callable, Iterable

_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)
_MEANING = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether one of the patterns matches a path relative to the tree, or a folder that it is below."""
    found = [re.compile(_as_regex(pattern), re.DOTALL) for pattern in patterns]
    return lambda path: any(pattern.fullmatch(path) for pattern in found)


def wrong_pattern(pattern: str) -> str | None:
    """Why a pattern is none of files in a tree, as a sentence."""
    parts = pattern.rstrip("/").split("/")
    if not pattern.strip() or pattern.startswith("/") or "\0" in pattern or {"..", ".", ""} & set(parts):
        return f"expected a pattern of paths inside the tree, got {pattern!r}"
    try:
        re.compile(_as_regex(pattern))
    except re.error as e:
        return f"expected a pattern of paths: {e.msg}, in {pattern!r}"
    return None


def _as_regex(pattern: str) -> str:
    return "".join(map(_translated, _PART.findall(pattern.rstrip("/")))) + r"(?:/.*)?"


def _translated(part: str) -> str:
    if len(part) > 1 and part.startswith("["):
        inside = re.sub(r"[\\\[&|~]", r"\\\g<0>", part[1:-1])  # which may mean more to another version of Python
        return f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return _MEANING.get(part) or re.escape(part)
