"""The property: whatever happens, in whatever order, no verdict is wrong, nothing is lost, nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from tests.support import disk
from tests.support.faults import box
from tests.support.faults.model import DISKS, Schedule
from tests.support.faults.schedules import run_seeds

MANY = range(500)
PLACES = ("local", "ssh", "box")


def play(place: str, among: Iterable[int], most: int, jobs: int) -> None:
    """The schedules of the first `most` seeds that are for `place`."""
    missing = box.why_not() if place == "box" else None
    if missing:
        pytest.skip(missing)
    seeds = [seed for seed in among if Schedule.of(seed).place == place and _can_be_played(seed)][:most]
    failures = run_seeds(seeds, jobs)
    assert not failures, "\n\n".join(
        f"python -m tests.support.faults.schedules {seed}\n{wrong}" for seed, wrong in failures.items()
    )


def _can_be_played(seed: int) -> bool:
    return not DISKS.keys() & {fault.name for fault in Schedule.of(seed).faults} or disk.why_not() is None


@pytest.mark.process
@pytest.mark.parametrize(
    ("place", "number"),
    [pytest.param("local", 1, marks=pytest.mark.slow), ("ssh", 1), pytest.param("box", 1, marks=pytest.mark.slow)],
)
def test_a_few_schedules(place: str, number: int) -> None:
    play(place, MANY, number, 2)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("place", PLACES)
def test_500_schedules(place: str) -> None:
    play(place, MANY, len(MANY), min(4, os.cpu_count() or 1))


def test_a_seed_is_a_schedule() -> None:
    assert [Schedule.of(seed) for seed in range(50)] == [Schedule.of(seed) for seed in range(50)]
    schedules = [Schedule.of(seed) for seed in MANY]
    assert {schedule.place for schedule in schedules} == set(PLACES)
    assert len({fault.name for schedule in schedules for fault in schedule.faults}) == 25
