"""The cells of a table: what is a number, and how a value is shown."""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional, Union

from orchestrator.shared.text import plain

Row = Mapping[str, Any]
Number = Union[int, float]

_LARGEST = 1 << 1023  # larger integers are no floats


def number_in(value: Any) -> Optional[Number]:
    """The number that a cell holds: a JSON number, or text in the form of one; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return math.inf if value > 0 else -math.inf
    return value if isinstance(value, (int, float)) else None


def as_equal(value: Any) -> Any:
    """What two cells must share to hold the same: numbers as such, whole ones as integers."""
    number = number_in(value)
    if number is None:
        return value
    return int(number) if number // 1 == number else number


def shown(value: Any) -> str:
    """The value in a sentence."""
    return repr(plain(value, 40)) if isinstance(value, str) and _parsed(value) is None else plain(value, 40)


def named(column: str) -> str:
    """A column's name in a sentence."""
    return plain(column, 80)


def _parsed(text: str) -> Optional[Number]:
    """Text as a number; integers stay exact."""
    if "_" in text:  # Python reads 1_000, tables do not mean it
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None
