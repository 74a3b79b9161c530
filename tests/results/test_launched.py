"""Kernels that tests do not launch any more."""

from __future__ import annotations

import pytest

from orchestrator.results.launched import Stage, fewer
from orchestrator.verdict import outcomes
from orchestrator.verdict.execution import Execution

pytestmark = pytest.mark.unit


def stage(*kernels: str, outcome: str = "passed") -> Stage:
    """One with a test t that launched these."""
    execution = Execution()
    execution.fold({"test": "t", "ran": {"cuda:0": dict.fromkeys(kernels, 1)} if kernels else {}})
    return Stage(outcomes.Session(tests={"t": outcomes.Test("t", "t", outcome)}), execution)


@pytest.mark.parametrize(
    ("now", "before", "gone"),
    [
        (stage(), [stage("fwd", "bwd")], "bwd, fwd"),
        (stage("bwd"), [stage("fwd", "bwd")], "fwd"),
        (stage("bwd"), [stage("fwd", "bwd"), stage("bwd")], ""),  # from run to run it differs
        (stage("bwd"), [stage("fwd", "bwd"), stage(outcome="failed")], "fwd"),
        (stage("fused"), [stage("fwd", "bwd")], ""),
        (stage("fwd", "bwd"), [stage("fwd")], ""),
        (stage(outcome="skipped"), [stage("fwd")], ""),
        (stage(), [stage("fwd", outcome="failed")], ""),
    ],
)
def test_kernels_that_a_test_launches_no_more_are_said(now: Stage, before: list[Stage], gone: str) -> None:
    said = [f"tests of s launched {gone} in X, and not now: t"] if gone else []
    assert [*fewer("s", now, before, "X")] == said
