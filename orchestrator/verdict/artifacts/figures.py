"""Figures: what a table says that it measured. A runbook names the keys, the measures, their units and directions."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, NewType, Optional, Tuple, TypedDict

from orchestrator.shared.schema import RULES
from orchestrator.shared.text import alternatives, plain
from orchestrator.verdict.artifacts.cells import as_equal, is_finite, named, number_in, shown
from orchestrator.verdict.artifacts.checks import Check
from orchestrator.verdict.artifacts.columns import Allowed
from orchestrator.verdict.artifacts.kind import Finding
from orchestrator.verdict.artifacts.reading import FLAGS, Better, Reading

Unit = NewType("Unit", str)
RULES[Unit] = lambda unit: None if plain(unit) else 'expected a unit such as ms, GB/s, or "1" for a ratio'


class Measure(TypedDict):
    """In which unit a column is, and which way is better; `neither` is shown and never judged."""

    unit: Unit
    better: Better


Measures = NewType("Measures", Dict[str, Measure])
RULES[Measures] = lambda measures: None if measures else "expected at least one column with its unit and `better`"


class _Asked(TypedDict):
    measures: Measures


class Asked(_Asked, total=False):
    """Of a table: the columns that tell one row from another, those that were measured, and the one with the flags."""

    keys: List[str]
    flags: str


class Readable(Check):
    """Each row has its keys, its measures are finite numbers, and its flags are known."""

    def __init__(self, asked: Asked, allowed: Allowed) -> None:
        self._measures = list(asked["measures"])
        self._flags = asked.get("flags")
        self.columns = [*(asked.get("keys") or ()), *self._measures, *([self._flags] if self._flags else [])]
        self._allowed = allowed
        self._passed_over = self._measured = 0

    def see(self, row: Any, number: int) -> Iterator[Finding]:
        for name in self._measures:
            cell = row[name]
            if self._allowed.holds(row, name):
                self._passed_over += 1
                continue
            self._measured += 1
            if not (_are_finite(cell) if isinstance(cell, list) else is_finite(cell)):
                where = f"in row {number}, column {named(name)}"
                yield Finding(f"holds {shown(cell)} {where}, expected a finite number, or a list of them")
        for flag in _flags(row, self._flags):
            if flag not in FLAGS:
                where = f"in row {number}, column {named(str(self._flags))}"
                yield Finding(f"holds the flag {shown(flag)} {where}, expected {alternatives(FLAGS)}")
            if flag == "impossible":
                yield Finding(f"says that row {number} is impossible", "impossible")

    def finish(self) -> Iterator[Finding]:
        if self._passed_over and not self._measured:
            where = plain(", ".join(self._measures), 120)
            yield Finding(f"holds nothing but allowed words in {where}, expected one figure at least", since=2)


def readings(asked: Asked, allow: Mapping[str, List[str]], rows: Iterable[Mapping[str, Any]]) -> Iterator[Reading]:
    """The figures of a table whose rows are as they should be; rows of the same keys are one."""
    allowed = Allowed(allow)
    samples: Dict[Tuple[Tuple[Tuple[str, str], ...], str], List[float]] = {}
    flags: Dict[Tuple[Tuple[str, str], ...], Dict[str, None]] = {}
    for row in rows:
        key = tuple((name, key_text(row[name])) for name in asked.get("keys") or ())
        flags.setdefault(key, {}).update(dict.fromkeys(_flags(row, asked.get("flags"))))
        for name in asked["measures"]:
            found = samples.setdefault((key, name), [])
            if not allowed.holds(row, name):
                cells = row[name] if isinstance(row[name], list) else [row[name]]
                found.extend(float(number_in(cell) or 0) for cell in cells)
    for (key, name), values in samples.items():
        measure = asked["measures"][name]
        if values:
            yield Reading(key, name, measure["unit"], measure["better"], tuple(values), tuple(flags[key]))


def key_text(value: Any) -> str:
    """The value of a key: whole numbers as such, however they are written."""
    return plain(as_equal(value), 200)


def _are_finite(cells: List[Any]) -> bool:
    return bool(cells) and all(map(is_finite, cells))


def _flags(row: Mapping[str, Any], column: Optional[str]) -> List[str]:
    """A list of words, or text with commas or spaces between them."""
    cell = row.get(column) if column else None
    return [str(word) for word in (cell if isinstance(cell, list) else str(cell or "").replace(",", " ").split())]
