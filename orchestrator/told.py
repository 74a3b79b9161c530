"""The one reader of what a pod tells as JSON, its answers, plans and journals: none of it costs more than it may."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.text import size

MOST_BYTES = 4 << 20
MOST_VALUES = 100_000
"""Numbers, texts, lists and mappings: one of three bytes, such as an empty list, takes thirty times as much memory."""


class TooMuch(ValueError):
    """A value that is too large or too deep to be read; the message is a clause."""


def told(data: bytes) -> Any:
    """The value. TooMuch, or ValueError for what is none, with the reason as a clause."""
    if len(data) > MOST_BYTES:
        raise TooMuch(f"it has {size(len(data))}, and at most {size(MOST_BYTES)} are read")
    if values(data) > MOST_VALUES:
        raise TooMuch(f"it has {values(data)} values, and at most {MOST_VALUES} are read")
    try:
        return json.loads(data)
    except RecursionError:
        raise TooMuch("it is too deep") from None


def values(data: bytes) -> int:
    """How many values there can be in it, without reading it."""
    return sum(map(data.count, (b",", b"[", b"{")))
