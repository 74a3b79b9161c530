"""Where a level changed: found where it was planted, and seldom where nothing was."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from orchestrator.figures.trend import steps

NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda r: r.gauss(0, 1),
    "log-normal": lambda r: math.exp(r.gauss(0, 0.5)) - 1,
    "heavy": lambda r: r.gauss(0, 1) / math.sqrt(sum(r.gauss(0, 1) ** 2 for _ in range(3)) / 3),
    "exponential": lambda r: r.expovariate(1),
    "uniform": lambda r: r.uniform(-1, 1),
    "one in twenty goes wrong": lambda r: r.gauss(0, 1) + (20 if r.random() < 0.05 else 0),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("runs", [10, 30, 100])
def test_rows_without_a_step_are_called_changed_less_than_once_in_twenty(noise: str, runs: int) -> None:
    rng = random.Random(f"{noise} {runs}")
    rows = [[100 * (1 + 0.02 * NOISES[noise](rng)) for _ in range(runs)] for _ in range(200)]
    assert sum(bool(steps(row)) for row in rows) <= 10 + 4  # 5 %, and what chance adds to 200 rows


@pytest.mark.parametrize(("runs", "size"), [(10, 0.1), (20, 0.05), (100, 0.05), (1000, 0.02)])
def test_a_planted_step_is_found_where_it_is(runs: int, size: float) -> None:
    rng = random.Random(runs)
    at = round(runs * 0.7)
    found = 0
    for _ in range(50):
        row = [100 * (1 + 0.01 * rng.gauss(0, 1)) * (1 + size * (n >= at)) for n in range(runs)]
        told = steps(row)
        found += len(told) == 1 and abs(told[0].at - at) <= (1 if size > 0.03 else 12)
    assert found >= 45


def test_each_of_several_steps_has_the_levels_beside_it() -> None:
    row = [10.0] * 20 + [12.0] * 20 + [9.0] * 20
    assert [(step.at, step.before, step.after) for step in steps(row)] == [(20, 10.0, 12.0), (40, 12.0, 9.0)]


@pytest.mark.parametrize("row", [[], [1.0], [1.0, 2.0], [0.0] * 30, [5.0] * 30, [0.0] * 10 + [1.0] * 10])
def test_what_has_no_level_to_compare_with_has_no_step(row: list[float]) -> None:
    assert not steps(row)


def test_less_than_a_hundredth_is_no_step() -> None:
    assert not steps([100.0] * 50 + [100.9] * 50) and steps([100.0] * 50 + [101.1] * 50)
