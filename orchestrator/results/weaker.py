"""What the tests of a stage compared, held against earlier runs of them: under its id a test may come to compare less.

A test is said to be weaker only where it is against each of those runs: what draws its sizes at random compares more
one time, and less another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from orchestrator.shared.text import listing
from orchestrator.verdict.outcomes import Session, Test

_FACTOR = 2
_FEW = 16
"""Elements: of single numbers a test may as well assert in another way, which nobody counts, that they are equal."""

Weakness = Callable[[Test, Test], "str | None"]


def weaker(stage: str, now: Session, before: Sequence[Session], then: str) -> Iterator[str]:
    """As sentences, one for each way to be weaker; `before` are earlier runs, the last one first, which is `then`."""
    left = dict(_in_all(now, before))
    for question, said in _WAYS:
        found = {id_: [question(test, earlier) for earlier in tests] for id_, (test, *tests) in left.items()}
        said_of = {id_: whys[0] for id_, whys in found.items() if all(whys)}
        left = {id_: tests for id_, tests in left.items() if id_ not in said_of}
        if said_of:
            yield said.format(stage, then, listing(f"{id_} ({why})" for id_, why in said_of.items()))


def _in_all(now: Session, before: Sequence[Session]) -> Iterator[tuple[str, list[Test]]]:
    """Tests that passed at the first try, now and then; of runs of earlier versions that is not known."""
    for test in now.with_outcome("passed"):
        earlier = [s.tests[test.id] for s in before if test.id in s.tests and test.id not in s.reruns]
        earlier = [each for each in earlier if each.outcome == "passed" and each.compared]
        if earlier and test.id not in now.reruns:
            yield test.id, [test, *earlier]


def _compares_less(now: Test, then: Test) -> str | None:
    here, were = _within(now), _within(then)
    return f"{here}, not {were}" if (were.known >= _FEW or were.more) and _is_short(here, were) else None


def _is_looser(now: Test, then: Test) -> str | None:
    """The first tolerance within which not so many elements are compared any more."""
    looser = sorted(t for t, _ in now.compared if t is not None)
    for tolerance in sorted(t for t, _ in then.compared if t is not None):
        were = _within(then, tolerance)
        if _is_short(_within(now, tolerance * _FACTOR), were):
            enough = next((t for t in looser if not _is_short(_within(now, t), were)), max(looser, default=tolerance))
            return f"{enough:.3g}, not {tolerance:.3g}" if enough > tolerance else None
    return None


class _Amount(NamedTuple):
    """Of elements: how many are known, and whether there were more."""

    known: float
    more: bool

    def __str__(self) -> str:
        return f"{self.known:,.0f}" if self.known or not self.more else "some"


def _within(test: Test, tolerance: float = float("inf")) -> _Amount:
    """How many a test compared within a tolerance, or one that is not known."""
    found = [elements for t, elements in test.compared if t is None or t <= tolerance]
    return _Amount(sum(filter(None, found)), None in found)


def _is_short(here: _Amount, were: _Amount) -> bool:
    if here.more:  # how many is not known of either, and so not whether they are fewer
        return were.more and here.known * _FACTOR <= were.known > 0
    return here.known * _FACTOR <= were.known if were.known else were.more and not here.known


def _is_of_other_types(now: Test, then: Test) -> str | None:
    new, gone = set(now.dtypes) - {*then.dtypes}, set(then.dtypes) - {*now.dtypes}
    return f"{listing(sorted(new))}, not {listing(sorted(gone))}" if new and gone else None


_WAYS: Sequence[tuple[Weakness, str]] = (
    (_compares_less, "tests of {} compared fewer elements than in {}: {}"),
    (_is_looser, "tests of {} compared with a larger tolerance than in {}: {}"),
    (_is_of_other_types, "tests of {} compared other types than in {}: {}"),
)
