"""Kernels that tests do not launch any more."""

from __future__ import annotations

import pytest

from orchestrator.results.launched import Stage, fewer
from orchestrator.verdict import outcomes
from orchestrator.verdict.execution import Execution

pytestmark = pytest.mark.unit


def stage(*kernels: str, outcome: str = "passed", **others: str) -> Stage:
    """One with a test t that launched these, and others with one each."""
    execution = Execution()
    launched = {"t": kernels, **{test: (kernel,) for test, kernel in others.items()}}
    for test, each in launched.items():
        execution.fold({"test": test, "ran": {"cuda:0": dict.fromkeys(each, 1)} if each else {}})
    return Stage(outcomes.Session(tests={test: outcomes.Test(test, test, outcome) for test in launched}), execution)


@pytest.mark.parametrize(
    ("now", "before", "gone"),
    [
        (stage(), [stage("fwd", "bwd")], "bwd, fwd"),
        (stage("bwd"), [stage("fwd", "bwd")], "fwd"),
        (stage("bwd"), [stage("fwd", "bwd"), stage("bwd")], ""),  # from run to run it differs
        (stage("bwd"), [stage("fwd", "bwd"), stage(outcome="failed")], "fwd"),
        (stage("bwd", first="init"), [stage("init", "bwd")], ""),  # only the first of all needs it
        (stage("bwd", other="init"), [stage("init", "bwd", other="init")], "init"),
        (stage("fused"), [stage("fwd", "bwd")], ""),
        (stage("fwd", "bwd"), [stage("fwd")], ""),
        (stage(outcome="skipped"), [stage("fwd")], ""),
        (stage(), [stage("fwd", outcome="failed")], ""),
    ],
)
def test_kernels_that_a_test_launches_no_more_are_said(now: Stage, before: list[Stage], gone: str) -> None:
    said = [f"tests of s launched {gone} in X, and not now: t"] if gone else []
    assert [*fewer("s", now, before, "X")] == said
