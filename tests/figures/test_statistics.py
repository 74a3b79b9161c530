"""The statistics by themselves, against values that are known."""

from __future__ import annotations

import itertools
import random

import pytest

from orchestrator.figures.statistics import are_real, effect, least_p, signed_rank_p, student


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (9, 2.262), (30, 2.042)]
)
def test_students_t(freedom: int, value: float) -> None:
    assert student(freedom, 0.025) == pytest.approx(value, rel=0.002)


def test_p_is_that_of_all_ways_to_set_the_signs() -> None:
    rng = random.Random(1)
    for count in (1, 4, 7):
        values = [rng.gauss(0.3, 1) for _ in range(count)]
        ranks = {value: rank for rank, value in enumerate(sorted(values, key=abs), 1)}
        seen = abs(sum(ranks[value] * (1 if value > 0 else -1) for value in values))
        ways = [
            abs(sum(s * r for s, r in zip(signs, ranks.values(), strict=True)))
            for signs in itertools.product((1, -1), repeat=count)
        ]
        assert signed_rank_p(values) == pytest.approx(sum(way >= seen for way in ways) / len(ways))
    assert signed_rank_p([0.0, 0.0]) == 1.0
    assert signed_rank_p([1, 1, 1, 1, 1, 1]) == least_p(6) == 2 / 64


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(4)
    for draw in (lambda: rng.gauss(0, 1), lambda: rng.expovariate(1) - rng.expovariate(1)):
        held = 0
        for _ in range(200):
            found = effect([draw() for _ in range(8)])
            held += found.low <= 0 <= found.high
        assert held >= 0.92 * 200


def test_the_same_numbers_give_the_same_answer() -> None:
    values = [0.01, 0.02, -0.01, 0.03, 0.02, 0.01]
    assert effect(values) == effect(values)
    assert effect([0.05] * 6) == (pytest.approx(0.05), pytest.approx(0.05), pytest.approx(0.05), 2 / 64)


def test_of_many_only_what_stands_out_is_believed() -> None:
    assert are_real([0.001, 0.2, 0.03, 0.9], 0.05) == [True, False, False, False]
    assert are_real([0.01, 0.02, 0.03, 0.04], 0.05) == [True] * 4
    assert are_real([], 0.05) == []
