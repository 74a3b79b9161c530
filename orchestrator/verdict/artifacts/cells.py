"""The cells of a table: what is a number, and how a value is shown."""

from __future__ import annotations

import math
import re
from typing import Any, Iterator, List, Mapping, Optional, Union

from orchestrator.shared.text import plain

Row = Mapping[str, Any]
Number = Union[int, float]

_ABSENT = frozenset("n/a|na|n.a.|#n/a|<na>|none|null|nil|nat|undefined|?|-|--|\u2014|\u2013|...".split("|"))
_NOT_DONE = r"(?:cuda )?(?:oom|out of memory)|skip|skipped|not (?:run|measured)|tbd|todo|err|error|fail|failed|timeout"
# `skipped: no GPU`, but neither `failed: 0` nor `errors: none`.
_SAYS_NOT_DONE = re.compile(rf"\s*(?:{_NOT_DONE})\s*(?:[:(\[]\s*(?!none\b)[^\W\d]\D*)?", re.IGNORECASE)
_HOLDS_NOT_DONE = re.compile(rf"\b(?:{_NOT_DONE})\b", re.IGNORECASE)
_UNIT = r"(?:[mun\u00b5\u03bc]?s|%|x|[kmgt]i?b(?:/s)?|[mgt]?flop/?s)"
_WITH_UNIT = re.compile(rf"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?\s*{_UNIT}", re.IGNORECASE)
_HASH = re.compile(r"(?=.*[a-f])[0-9a-f]{7,64}")  # 12e4567 is none of infinity
_NOT_FINITE = re.compile(r"[-+]?(?:nan\(\w*\)|1\.#(?:[qs]?nan|ind|inf)\d*)", re.IGNORECASE)  # as C writes it
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


def is_figure(value: Any) -> bool:
    """Whether the cell holds a finite number, alone or with a unit."""
    return is_finite(value) or (isinstance(value, str) and bool(_WITH_UNIT.fullmatch(value)))


def is_word(value: Any) -> bool:
    """Text that says that there is no number: OOM, 0 (skipped), n/a, -, nan; not 2.8.1, 1.2ms or 4106f1b."""
    if not isinstance(value, str) or not value or _HASH.fullmatch(value):
        return False
    if number_in(value) is not None:
        return not is_finite(value)
    is_led_by_digit = next((c for c in value if c.isalnum()), "x").isdigit()
    return not is_led_by_digit or bool(_HOLDS_NOT_DONE.search(value))


def says_not_done(value: Any) -> bool:
    """Text that says no more than that something was not done: OOM, skipped, failed."""
    return isinstance(value, str) and bool(_SAYS_NOT_DONE.fullmatch(value.rstrip()))


def says_nothing(value: Any) -> bool:
    """Text that stands for a value that there is not."""
    return isinstance(value, str) and (value.strip().lower() in _ABSENT or says_not_done(value))


def says_no_choice(value: Any) -> bool:
    """As `says_nothing`; "none" itself may be what is chosen."""
    return says_nothing(value) and value.strip().lower() != "none"


def leaves(value: Any) -> Iterator[Any]:
    """What stands in a list or an object, however deep; any other value itself."""
    left: List[Any] = [value]
    while left:
        part = left.pop()
        if isinstance(part, (dict, list)):
            left.extend(part.values() if isinstance(part, dict) else part)
        else:
            yield part


def holds_nothing(value: Any) -> bool:
    """null, blank text, or a list or object of which every part holds nothing."""
    return all(part is None or (isinstance(part, str) and not plain(part)) for part in leaves(value))


def holds_no_value(value: Any) -> bool:
    """As `holds_nothing`, also where words or NaN stand for what there is not."""
    has_parts = isinstance(value, (dict, list))
    says = says_no_choice if has_parts else says_nothing
    return all(holds_nothing(part) or says(part) or _is_not_finite(part) for part in leaves(value))


def stray_in(value: Any) -> Optional[str]:
    """In a list of numbers, text that stands for one that there is not: nan, OOM."""
    parts = value if isinstance(value, list) else []
    if not any(isinstance(part, (int, float)) for part in parts):
        return None
    texts = (part for part in parts if isinstance(part, str))
    return next((text for text in texts if says_not_done(text) or math.isnan(number_in(text) or 0)), None)


def same(value: Any) -> str:
    """Equal for cells that hold the same; true and "True" are, as CSV has no other way to say it."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return str(value).lower()
    return repr(as_equal(value))


def _is_not_finite(value: Any) -> bool:
    return number_in(value) is not None and not is_finite(value)


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
    if "_" in text or _HASH.fullmatch(text):  # Python reads 1_000, tables do not mean it
        return None
    if _NOT_FINITE.fullmatch(text):
        return math.nan
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None
