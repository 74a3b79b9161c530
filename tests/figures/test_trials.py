"""What of a comparison's stages did not pass."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from orchestrator.figures.trials import Shortfall, shortfalls
from orchestrator.shared.plan import Plan
from orchestrator.verdict.status import Status
from tests.support.plans import plan_of

RUNBOOK = "name: r\nstages: [{name: tests, run: [pytest, tests]}, {name: bench, run: [python, b.py]}]\n"
NAMES = ["tests.a", "tests.b", "bench.00.0.a", "bench.00.1.b", "bench.01.0.b", "bench.01.1.a"]


def compared() -> Plan:
    tests, bench = plan_of(RUNBOOK)["stages"]
    stages = [{**tests, "name": name} for name in NAMES[:2]]
    for name in NAMES[2:]:
        trial = {"of": "bench", "block": int(name[6:8]), "side": name[-1]}
        stages.append({**bench, "name": name, "trial": trial})  # type: ignore[typeddict-item]
    return {**plan_of(RUNBOOK), "stages": stages}  # type: ignore[typeddict-item]


def statuses(over: Mapping[str, Status]) -> dict[str, Status]:
    return {**dict.fromkeys(NAMES, "passed"), **over}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("over", "found"),
    [
        ({}, []),
        ({"bench.01.0.b": "crashed"}, [Shortfall("bench of b", ["bench.01.0.b"], 2)]),
        (
            {"bench.00.1.b": "failed", "bench.01.0.b": "invalid"},
            [Shortfall("bench of b", ["bench.00.1.b", "bench.01.0.b"], 2)],
        ),
        ({"tests.b": "failed", **dict.fromkeys(NAMES[2:], "blocked")}, [Shortfall("tests.b", ["tests.b"], 1)]),
    ],
)
def test_what_did_not_pass_is_told_by_side(over: dict[str, Status], found: list[Shortfall]) -> None:
    assert shortfalls(compared(), statuses(over)) == found
    assert [one.is_whole for one in found] == [len(over) != 1 or "tests.b" in over for _ in found]
