"""The cells of a table's columns, over all rows: what allowed words stand for, and words where numbers are owed."""

from __future__ import annotations

from collections import Counter
from typing import Any, Collection, Dict, Iterator, Mapping, Sequence

from orchestrator.verdict.artifacts.cells import (
    Row,
    holds_nothing,
    is_figure,
    is_word,
    named,
    same,
    says_nothing,
    shown,
)
from orchestrator.verdict.artifacts.kind import Finding


class Allowed:
    """`allow` of a runbook: by column, the words that may stand where a number is owed."""

    def __init__(self, words: Mapping[str, Sequence[str]]) -> None:
        self._words = {name: {same(word) for word in given} for name, given in words.items()}

    def holds(self, row: Row, name: str) -> bool:
        """Whether one of them stands there; "" allows a cell that is empty, "false" and "-1" those of JSON too."""
        value = row.get(name)
        return name in self._words and same("" if value is None else value) in self._words[name]


class Words:
    """Words in columns of numbers.

    A column that is `owed` is one of numbers if any cell holds one, perhaps with a unit, and all others hold words; any
    other column if most of its cells hold numbers. Names, versions, dates make a column that is none. One that is owed
    holds something else than words for a value that there is not.
    """

    def __init__(self, owed: Collection[str], allowed: Allowed) -> None:
        self._owed, self._allowed = owed, allowed
        self._numbers: Counter[str] = Counter()
        self._words: Counter[str] = Counter()
        self._others: Counter[str] = Counter()
        self._without: Counter[str] = Counter()
        self._first: Dict[str, str] = {}

    def see(self, row: Any, number: int) -> None:
        """Look at a row; only one of named cells has columns."""
        for name, value in row.items() if isinstance(row, dict) else ():
            if holds_nothing(value) or self._allowed.holds(row, name):
                continue
            if is_figure(value):
                self._numbers[name] += 1
            elif is_word(value) or isinstance(value, bool):
                self._words[name] += 1
                self._without[name] += says_nothing(value)
                self._first.setdefault(name, f"holds {shown(value)} in row {number}, column {named(name)}")
            else:
                self._others[name] += 1

    def finish(self) -> Iterator[Finding]:
        """What is wrong, after the last row."""
        for name, sentence in self._first.items():
            if self._is_of_numbers(name):
                yield Finding(f"{sentence}, expected a number as in other rows, or a word that `allow` names", since=2)
            elif self._is_without_values(name):
                yield Finding(f"{sentence}, and no value in any, expected one, or a word that `allow` names", since=2)

    def _is_without_values(self, name: str) -> bool:
        is_all = self._without[name] == self._words[name]
        return name in self._owed and is_all and not self._numbers[name] and not self._others[name]

    def _is_of_numbers(self, name: str) -> bool:
        numbers, words, others = self._numbers[name], self._words[name], self._others[name]
        if name in self._owed:
            return numbers > 0 and others == 0
        return numbers > words + others
