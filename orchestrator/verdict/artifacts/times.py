"""Times in a table: what passed is not below zero; -1 stands for a value that there is not."""

from __future__ import annotations

import re
from typing import Any, Iterator, Sequence

from orchestrator.verdict.artifacts.cells import named, number_in, shown
from orchestrator.verdict.artifacts.checks import Check
from orchestrator.verdict.artifacts.columns import Allowed
from orchestrator.verdict.artifacts.kind import Finding

_TIME = re.compile(
    r"(?:.*[\W_])?(?:ms|us|µs|ns|sec|secs|seconds|time|latency|duration|runtime|elapsed)(?:[\W_].*)?", re.IGNORECASE
)
_BETWEEN = re.compile(
    r"delta|diff|change|saved|saving|gain|overhead|offset|skew|slack|margin|drift|lag|improve|minus|err|vs|log",
    re.IGNORECASE,
)
"""What lies between two times, or a point on a scale, may be below zero."""


class Passed(Check):
    """The columns of those that are owed which are times, by their names, hold none below zero."""

    def __init__(self, owed: Sequence[str], allowed: Allowed) -> None:
        self._times = [name for name in owed if _TIME.fullmatch(name) and not _BETWEEN.search(name)]
        self._allowed = allowed

    def see(self, row: Any, number: int) -> Iterator[Finding]:
        for name in self._times:
            value = number_in(row[name])
            if value is not None and value < 0 and not self._allowed.holds(row, name):
                where = f"in row {number}, column {named(name)}"
                yield Finding(f"holds {shown(row[name])} {where}, and no time is below zero", since=2)
