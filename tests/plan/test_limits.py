"""Durations and amounts as they are written, the tighter limit, and the estimate."""

from __future__ import annotations

import pytest

from orchestrator.config.inventory import Pod as InventoryPod
from orchestrator.errors import InputError
from orchestrator.plan.limits import History, describe, duration, estimate, run_limit
from orchestrator.shared.plan import RunLimit
from tests.support.plans import plan_of

PRICED = InventoryPod(name="p", transport="local", cost_per_hour=0.5)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1h30m", 5400), ("2700", 2700), ("45s", 45), ("1.5h", 5400), ("1h0m5s", 3605), (" 2h ", 7200)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "90x", "m", "1m1h", "nan", "inf", "1e3", "9" * 400, "1:30", "1h30"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InputError, match="expected a duration such as 90m"):
        duration(text)


def test_the_tighter_limit_counts() -> None:
    limit = run_limit(PRICED, "2h", 0.5)
    assert limit == RunLimit(given="--max-cost 0.5 (at 0.5 an hour)", seconds=3600, spent=0)
    assert run_limit(PRICED, "10m", 0.5) == RunLimit(given="--max-time 10m", seconds=600, spent=0)
    assert run_limit(PRICED, None, None) is None


@pytest.mark.parametrize("price", [None, 0.0])
def test_a_cost_needs_a_price(price: float | None) -> None:
    with pytest.raises(InputError, match="expected its cost_per_hour"):
        run_limit(InventoryPod(name="p", transport="local", cost_per_hour=price), None, 1.0)


@pytest.mark.parametrize("cost", [0.0, -1.0, float("nan"), float("inf"), 1e308])
def test_a_cost_is_an_amount(cost: float) -> None:
    with pytest.raises(InputError, match="expected an amount above 0"):
        run_limit(PRICED, None, cost)


def test_the_estimate_is_by_earlier_runs_and_else_unknown() -> None:
    stages = plan_of()["stages"]
    pytest_, absent = ((stage["name"], tuple(stage["argv"])) for stage in stages)
    unknown = estimate(stages, History(), None)
    assert (unknown["seconds"], unknown["cost"], unknown["by_limit"]) == (7200, None, ["cpu", "absent"])
    assert "how long the stages take is unknown" in describe(unknown, None, None)
    half = estimate(stages, History(2, {pytest_: [10.0, 30.0]}), 0.5)
    assert (half["seconds"], half["by_limit"]) == (3620, ["absent"]) and half["cost"] == pytest.approx(
        3620 / 7200, abs=1e-4
    )
    told = describe(half, 0.5, None)
    assert told.startswith("1 of 2 stages takes about 20.0 s (0.002778 by its cost_per_hour), by 2 earlier runs")
    assert told.endswith("how long the others take is unknown") and half["stages"] == {"cpu": 20.0}
    known = estimate(stages, History(3, {pytest_: [10.0], absent: [1.0, 2.0, 30.0]}), None)
    assert known["seconds"] == 12 and known["by_limit"] == []
    assert "the stages take about 12.0 s, by 3 earlier runs" in describe(known, None, None)
    other_command = estimate(stages, History(1, {("cpu", ("python",)): [1.0]}), None)
    assert other_command["by_limit"] == ["cpu", "absent"]
