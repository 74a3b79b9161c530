"""Figures that are measured, times and rates, as tables, JSON and lines of text name them.

To five digits no two runs measure the same; other figures, such as errors of seeded data, may well repeat.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import Any, Collection, Dict, FrozenSet, Iterator, List, Tuple

_DIGITS = 5
_KEPT = 9
"""Significant digits in which a figure is the same in another unit."""
_UNITS = r"(?:ms|us|µs|ns|s|[tgm]flop/?s|[tg]i?b/s|tok(?:ens)?/s|it/s)"
_NAME = re.compile(
    r"(?:^|[\W_])(?:ms|us|µs|ns|secs?|seconds?|time|latency|duration|runtime|elapsed|[tgm]?flops?|[tg]i?b_?p?s|throughput"
    r"|tok(?:ens)?_(?:per_)?s(?:ec)?|fps)(?:$|[\W_])",
    re.IGNORECASE,
)
# What only a clock tells; not a time of what is simulated, or the length of a recording.
_CLOCKED = re.compile(
    r"(?:^|[\W_])(?:ms|us|µs|latency|elapsed|runtime|[tgm]flops|[tg]i?b_?p?s|throughput|tok(?:ens)?_(?:per_)?s(?:ec)?)"
    r"(?:$|[\W_])",
    re.IGNORECASE,
)
_SPEEDUP = re.compile(r"speed_?ups?", re.IGNORECASE)
_STATISTIC = re.compile(r"mean|median|min|max|std_?dev|iqr|q1|q3|hd15iqr|ops|p\d\d|total|data")
# What a bench compares its own with, and what it calculates.
_OF_OTHERS = re.compile(
    r"old|before|base|prev|ref|commit|expect|paper|publish|their|target|limit|main|stamp|epoch|budget|roof|theor|bound"
    r"|ideal|model|estim|predict|simul",
    re.IGNORECASE,
)
_NUMBER = r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?"
_NUMBER_ALONE = re.compile(_NUMBER)
_NUMBERS = re.compile(rf"(?<![\w.]){_NUMBER}(?![\d.])")
_TOLD = re.compile(
    rf"(?<!\w)([A-Za-z_]\w*)\s*[=:]\s*({_NUMBER})(?![\d.])|(?<![\w.])({_NUMBER})\s*{_UNITS}(?!\w)", re.IGNORECASE
)
_WITH_UNIT = re.compile(rf"(?<![\w.])({_NUMBER})\s*(ms|us|µs|[tg]flop/?s|[tg]i?b/s|tok(?:ens)?/s)(?!\w)", re.IGNORECASE)
_WITHIN = "\n"  # between the names of keys: a time may stand under its size, {"ms": {"512": 1.5}}
_CELLS = re.compile(r"[,;|\t]")


def measured(text: str, *, of_statistics: bool) -> FrozenSet[str]:
    """The figures in a text that say what was measured; `of_statistics` is one of a program for benches."""
    found = _told(text)
    named = (number for name, number in found if _is_measured(name, of_statistics=of_statistics))
    return frozenset(filter(None, map(_significant, named)))


def by_name(text: str) -> Dict[str, List[str]]:
    """All finite numbers in a text, as they are written, by their names, or the last part of one that says enough."""
    found: Dict[str, List[str]] = {}
    for name, written in _told(text):
        number, own = written.strip(), name.rpartition(_WITHIN)[2]
        if _NUMBER_ALONE.fullmatch(number) and math.isfinite(float(number)):
            found.setdefault(own if _NAME.search(own) else name.lstrip(_WITHIN), []).append(number)
    return found


def told(text: str) -> List[Tuple[str, str]]:
    """What it tells, words too, by the last part of each name."""
    return [(name.rpartition(_WITHIN)[2], written) for name, written in _told(text)]


def clocked(text: str, asked: Collection[str] = (), given: Collection[str] = ()) -> List[str]:
    """The names, or units, of what only a clock tells; not of whole numbers, which are limits and sizes, nor of what
    the stage was `given`. Nothing where what is `asked` for, by keys or columns, are figures of something else.
    """
    if _is_of_something_else(text, asked):
        return []
    found = [
        name
        for name, cells in by_name(text).items()
        if _CLOCKED.search(name)
        and not _OF_OTHERS.search(name)
        and any(_is_fraction(cell) and cell not in given for cell in cells)
    ]
    units = [] if _documents(text) else _WITH_UNIT.findall(text)
    told = [unit for number, unit in units if "." in number and number not in given]
    return list(dict.fromkeys([*(name.replace(_WITHIN, ".") for name in found), *told]))


def _is_of_something_else(text: str, asked: Collection[str]) -> bool:
    told = ((name.lstrip(_WITHIN), number) for name, number in _told(text)) if asked else ()
    names = [name for name, number in told if name.partition(_WITHIN)[0] in asked and _is_fraction(number)]
    return bool(names) and not any(_NAME.search(name) or is_speedup(name) for name in names)


def _is_fraction(cell: str) -> bool:
    return bool(_NUMBER_ALONE.fullmatch(cell)) and math.isfinite(float(cell)) and float(cell) != int(float(cell))


def is_measured(name: str) -> bool:
    """Whether a column, or a key, is of a time or a rate that was measured."""
    return _is_measured(name, of_statistics=False)


def is_speedup(name: str) -> bool:
    """Whether it says how much faster one of two is."""
    return bool(_SPEEDUP.search(name))


def _told(text: str) -> List[Tuple[str, str]]:
    """What a text tells, by the names that it has for it."""
    found: List[Tuple[str, str]] = []
    documents = _documents(text)
    for document in documents:
        found += _pairs(document, "")
    if not documents:
        found += _columns(text)
        found += ((match[1] or "time", match[2] or match[3]) for match in _TOLD.finditer(text))
    return found


def figures(text: str) -> FrozenSet[str]:
    """All figures in a text that have so many digits."""
    return frozenset(filter(None, map(_significant, _NUMBERS.findall(text))))


def _is_measured(name: str, *, of_statistics: bool) -> bool:
    own = name.rpartition(_WITHIN)[2]
    is_figure = _NAME.search(name) or (of_statistics and _STATISTIC.fullmatch(own))
    return bool(is_figure) and not _OF_OTHERS.search(own)


def _significant(number: str) -> str:
    """The digits of a number, wherever its point is; blank if they are few, or it is a whole one, as sizes are."""
    if len(number) <= _DIGITS:
        return ""
    with contextlib.suppress(ValueError, OverflowError):
        if float(number) == int(float(number)):
            return ""
        digits = f"{float(number):.{_KEPT - 1}e}".lstrip("-").partition("e")[0].replace(".", "").rstrip("0")
        return digits if len(digits) >= _DIGITS else ""
    return ""


def _documents(text: str) -> List[Any]:
    """What a text holds of JSON, whole or in lines; nothing if it is something else."""
    for parts in ([text], [line for line in text.splitlines() if line.strip()]):
        with contextlib.suppress(ValueError, RecursionError):
            found = [json.loads(part, parse_float=str, parse_int=str) for part in parts]
            if found and all(isinstance(document, (dict, list)) for document in found):
                return found
    return []


def _pairs(node: Any, name: str) -> Iterator[Tuple[str, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _pairs(value, f"{name}{_WITHIN}{key}")
    elif isinstance(node, list):
        for value in node:
            yield from _pairs(value, name)
    elif isinstance(node, str):
        yield name, node


def _columns(text: str) -> Iterator[Tuple[str, str]]:
    """The cells of tables, CSV's or Markdown's, each with the name above its column."""
    header: List[str] = []
    for line in text.splitlines():
        cells = [cell.strip().strip('"') for cell in _CELLS.split(line.strip().strip("|"))]
        if len(cells) < 2:
            header = []
        elif any(map(_NAME.search, cells)) and not any(map(_NUMBERS.fullmatch, cells)):
            header = cells
        elif len(cells) == len(header):
            yield from zip(header, cells)
