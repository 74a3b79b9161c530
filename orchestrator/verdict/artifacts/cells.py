"""The cells of a table: what is a number, and how a value is shown."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, Optional, Union

from orchestrator.shared.text import plain

Row = Mapping[str, Any]
Number = Union[int, float]

_NO_VALUE = frozenset(
    "oom|out of memory|n/a|na|none|null|?|-|--|skip|skipped|not run|tbd|todo|err|error|fail|failed|timeout".split("|")
)
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


def is_finite(value: Any) -> bool:
    """Whether the cell holds a number, and neither NaN nor infinity."""
    number = number_in(value)
    return number is not None and math.isfinite(number)


def is_word(value: Any) -> bool:
    """Text that says that there is no number: OOM, skipped (no sm_90), n/a, -, nan; not 2.8.1, 1.2ms or 4106f1b."""
    if not isinstance(value, str) or not value:
        return False
    if number_in(value) is not None:
        return not is_finite(value)
    return not next((c for c in value if c.isalnum()), "x").isdigit()


def says_nothing(value: Any) -> bool:
    """Text that stands for a value that there is not."""
    return isinstance(value, str) and value.strip().lower() in _NO_VALUE


def holds_nothing(value: Any) -> bool:
    """null, blank text, or a list or object of which every part holds nothing."""
    left: List[Any] = [value]
    while left:
        part = left.pop()
        if isinstance(part, (dict, list)):
            left.extend(part.values() if isinstance(part, dict) else part)
        elif part is not None and not (isinstance(part, str) and not plain(part)):
            return False
    return True


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
