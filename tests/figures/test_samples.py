"""What samples say of themselves, by distributions whose kind is known."""

from __future__ import annotations

import random

import pytest

from orchestrator.figures.samples import flags_of, is_bimodal


@pytest.mark.parametrize("n", [10, 16, 20, 50, 200])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.gauss(10, 0.3),
        lambda rng: 10 + rng.expovariate(2),
        lambda rng: rng.lognormvariate(2, 0.1),
        lambda rng: rng.uniform(9, 11),
    ],
)
def test_one_kind_of_samples_is_seldom_taken_for_two(draw: object, n: int) -> None:
    rng = random.Random(20)
    wrong = sum(is_bimodal([draw(rng) for _ in range(n)]) for _ in range(300))  # type: ignore[operator]
    assert wrong <= 6


@pytest.mark.parametrize("n", [10, 16, 50])
def test_two_kinds_are_seen(n: int) -> None:
    rng = random.Random(20)
    told = [is_bimodal([rng.gauss(22.5 if i % 2 else 25.5, 0.1) for i in range(n)]) for _ in range(100)]
    assert sum(told) >= 99


def test_a_single_outlier_is_not_a_second_kind_and_two_that_are_close_are_one() -> None:
    assert not is_bimodal([10.0, 10.1, 9.9, 10.0, 10.05, 9.95, 10.0, 15.0])
    assert not is_bimodal([10.0] * 8 + [10.05] * 8)
    assert not is_bimodal([1.0, 2.0])


def test_noisy_is_a_wide_middle() -> None:
    assert flags_of([10, 10.1, 9.9, 10, 10.1, 9.9, 10, 30]) == []
    assert flags_of([8, 9, 10, 11, 12, 8.5, 9.5, 11.5]) == ["noisy"]
