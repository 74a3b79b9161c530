"""Tests that compare less under the same id, and changes after which they compare no less."""

from __future__ import annotations

import pytest

from orchestrator.results.weaker import weaker
from orchestrator.verdict import outcomes
from orchestrator.verdict.outcomes import Session

pytestmark = pytest.mark.unit

Pairs = list[tuple[float | None, float | None]]
FULL: Pairs = [(1e-3, 65536.0)]


def session(*compared: Pairs, dtypes: tuple[str, ...] = (), outcome: str = "passed") -> Session:
    """One whose tests t0, t1 ... compared so."""
    made = enumerate(compared)
    tests = [outcomes.Test(f"t{n}", f"t{n}", outcome, compared=list(pairs), dtypes=list(dtypes)) for n, pairs in made]
    return Session(tests={test.id: test for test in tests})


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (FULL, [(1e-3, 64.0)], "compared fewer elements than in X: t0 (64, not 65,536)"),
        (FULL, [(1e-3, 1.0)], "compared fewer elements than in X: t0 (1, not 65,536)"),
        (FULL, [], "compared fewer elements than in X: t0 (0, not 65,536)"),
        ([(1e-3, None)], [], "compared fewer elements than in X: t0 (0, not some)"),
        (FULL, [(0.1, 65536.0)], "compared with a larger tolerance than in X: t0 (0.1, not 0.001)"),
        ([(0.0, 64.0)], [(1e-5, 64.0)], "compared with a larger tolerance than in X: t0 (1e-05, not 0)"),
        ([(1e-3, None)], [(1e-1, None)], "compared with a larger tolerance than in X: t0 (0.1, not 0.001)"),
        (
            [(1e-3, 9e3), (1e-2, 9e3)],
            [(1e-2, 18e3)],
            "compared with a larger tolerance than in X: t0 (0.01, not 0.001)",
        ),
        # Nothing is weaker, or it is not known.
        (FULL, FULL, ""),
        (FULL, [(1e-3, 60000.0)], ""),
        (FULL, [(2e-3, 65536.0)], ""),
        (FULL, [(1e-5, 65536.0)], ""),
        (FULL, [*FULL, (0.5, 4096.0), (0.9, None)], ""),
        (FULL, [(None, 65536.0)], ""),
        (FULL, [(1e-3, None)], ""),
        ([(None, 65536.0)], FULL, ""),
        ([(1e-3, 3.0)], [], ""),
        ([(None, None)], [(None, None)], ""),
        ([], FULL, ""),
    ],
)
def test_what_is_weaker_is_said(then: Pairs, now: Pairs, said: str) -> None:
    found = list(weaker("s", session(now), [session(then)], "X"))
    assert found == ([f"tests of s {said}"] if said else [])


def test_only_what_is_weaker_than_in_each_earlier_run_is_said() -> None:
    """The sizes of some are drawn at random; others were seen by no other run."""
    before = [session([(1e-3, 4000.0)], FULL), session([(1e-3, 90.0)])]
    now = session([(1e-3, 100.0)], [(1e-3, 100.0)])
    assert list(weaker("s", now, before, "X")) == ["tests of s compared fewer elements than in X: t1 (100, not 65,536)"]


def test_tests_are_told_together_and_each_once() -> None:
    now = session([(0.1, 1.0)], [(0.1, 65536.0)], [(1.0, 1.0)])
    assert list(weaker("s", now, [session(FULL, FULL, FULL)], "X")) == [
        "tests of s compared fewer elements than in X: t0 (1, not 65,536), t2 (1, not 65,536)",
        "tests of s compared with a larger tolerance than in X: t1 (0.1, not 0.001)",
    ]


@pytest.mark.parametrize(
    ("now", "said"), [(("float32",), True), (("bfloat16", "float32"), False), (("bfloat16",), False), ((), False)]
)
def test_other_types_are_said(now: tuple[str, ...], said: bool) -> None:
    found = list(weaker("s", session(FULL, dtypes=now), [session(FULL, dtypes=("bfloat16",))], "X"))
    assert found == (["tests of s compared other types than in X: t0 (float32, not bfloat16)"] if said else [])


def test_nothing_is_said_of_a_test_that_was_run_again_or_did_not_pass() -> None:
    """A try that failed has compared, too."""
    again = session(FULL)
    again.reruns["t0"] = "AssertionError"
    now = session([(0.1, 1.0)])
    assert list(weaker("s", now, [again], "X")) == list(weaker("s", now, [session(FULL, outcome="failed")], "X")) == []
