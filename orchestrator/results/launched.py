"""Which of Triton's kernels the tests of a stage launched, held against earlier runs: where a kernel is replaced
by what it is compared with, each comparison holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from orchestrator.shared.text import listing
from orchestrator.verdict.execution import Execution
from orchestrator.verdict.outcomes import Session


class Stage(NamedTuple):
    """Of one that passed: its tests, and what was seen of each."""

    session: Session
    execution: Execution

    def kernels(self, test: str) -> set[str]:
        return {kernel for kernels in self.execution.of(test).launches.values() for kernel in kernels}

    def passed(self) -> set[str]:
        return {test.id for test in self.session.with_outcome("passed")}

    def of_one(self) -> set[str]:
        """The kernels that one test alone launched, as the first that needs what is kept for all."""
        tests = Counter(kernel for test in self.passed() for kernel in self.kernels(test))
        return {kernel for kernel, n in tests.items() if n == 1}


def fewer(name: str, now: Stage, before: Sequence[Stage], then: str) -> Iterator[str]:
    """As sentences; `before` are earlier runs, the last one first, which is `then`. Of a test that launches another
    kernel instead nothing is said: it has another name now. Nor where one test alone launched it, and another one does.
    """
    found: dict[str, list[str]] = {}
    passed = [stage.passed() for stage in before]
    moved = now.of_one() & before[0].of_one()
    for test in sorted(now.passed()):
        earlier = [stage.kernels(test) for stage, ids in zip(before, passed, strict=True) if test in ids]
        here = now.kernels(test)
        gone = set.intersection(*earlier) - here - moved if earlier else set()
        if gone and not here.difference(*earlier):
            found.setdefault(listing(sorted(gone)), []).append(test)
    for kernels, tests in found.items():
        yield f"tests of {name} launched {kernels} in {then}, and not now: {listing(tests)}"
