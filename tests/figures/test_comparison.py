"""Faster, slower, same, or cannot tell: by simulated machines of which the truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from orchestrator.figures import Clocks, Figure, Identity
from orchestrator.figures.comparison import Comparison, Row, Trial, compare
from orchestrator.plan.blocks import SIDES, Side, trials

BLOCKS = 20
# Of one run of a bench: what its median is taken for, by how long the session lasts already (0 to 1).
Machine = Callable[[random.Random, float], float]

MACHINES: dict[str, Machine] = {
    "quiet": lambda rng, t: rng.gauss(1, 0.002),
    "noisy": lambda rng, t: rng.lognormvariate(0, 0.03),
    "heavy tails": lambda rng, t: 1 + 0.01 * rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1, 1)),
    "neighbours": lambda rng, t: rng.gauss(1, 0.004) * (1.5 if rng.random() < 0.04 else 1),
    "drift": lambda rng, t: rng.gauss(1, 0.004) * (1 + 0.3 * t),
    "a step": lambda rng, t: rng.gauss(1, 0.004) * (1.2 if t > 0.43 else 1),
    "bimodal": lambda rng, t: rng.gauss(1, 0.002) * (1.13 if rng.random() < 0.5 else 1),
}


def identity(row: int) -> Identity:
    return Identity("bench", "bench.csv", (("S", str(row)),), "ms")


def session(
    machine: Machine, rng: random.Random, rows: int, slower: float = 0.0, blocks: int = BLOCKS
) -> Iterator[Trial]:
    """In the order of a plan; of B, each row is `slower`."""
    for n, (trial, _) in enumerate(trials(["bench"], blocks, rng)):
        t = n / (blocks * len(SIDES))
        factor = 1 + slower if trial["side"] == "b" else 1
        figures = {
            identity(row): Figure(identity(row), "ms", "lower", (factor * (row + 1) * max(0.01, machine(rng, t)),))
            for row in range(rows)
        }
        yield Trial(trial["block"], trial["side"], figures)


def answers(found: Comparison) -> dict[str, int]:
    return {answer: len(found.of(answer)) for answer in ("faster", "slower", "same", "cannot tell")}  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", ["noisy", "heavy tails", "neighbours", "drift", "a step", "bimodal"])
def test_a_commit_against_itself_is_seldom_called_different(machine: str) -> None:
    """40 comparisons of 3 rows: at most 5 % of the rows."""
    rng = random.Random(20)
    found = [compare(session(MACHINES[machine], rng, rows=3), threshold=0.01) for _ in range(40)]
    called = sum(answers(each)["faster"] + answers(each)["slower"] for each in found)
    assert called <= 0.05 * 40 * 3, machine
    assert sum(each.false_alarms for each in found) <= 0.05 * 40 * 3


@pytest.mark.parametrize(
    ("machine", "blocks"),
    [("quiet", 6), ("heavy tails", BLOCKS), ("neighbours", BLOCKS), ("drift", BLOCKS), ("a step", BLOCKS)],
)
def test_a_commit_that_is_5_percent_slower_is_found(machine: str, blocks: int) -> None:
    rng = random.Random(20)
    rows: list[Row] = []
    for _ in range(15):
        rows += compare(session(MACHINES[machine], rng, rows=2, slower=0.05, blocks=blocks), threshold=0.01).rows
    found = [row for row in rows if row.answer == "slower"]
    assert len(found) > 0.9 * len(rows), [row.why for row in rows]
    assert not [row for row in rows if row.answer in ("faster", "same")]
    covered = [row for row in rows if row.measured and row.measured.low <= 1.05 <= row.measured.high]
    assert len(covered) >= 0.9 * len(rows)


def test_one_row_of_many_is_found_and_no_other_is_called() -> None:
    rng = random.Random(20)
    trials = [
        Trial(
            trial.block,
            trial.side,
            {
                name: figure if name != identity(3) or trial.side != "b" else slower(figure)
                for name, figure in trial.figures.items()
            },
        )
        for trial in session(MACHINES["quiet"], rng, rows=20)
    ]
    found = compare(trials, threshold=0.01)
    assert [row.identity for row in found.of("slower")] == [identity(3)]
    assert answers(found) == {"faster": 0, "slower": 1, "same": 19, "cannot tell": 0}


def slower(figure: Figure, by: float = 1.05) -> Figure:
    return Figure(figure.identity, figure.unit, figure.better, tuple(value * by for value in figure.samples))


def test_a_machine_whose_runs_are_of_two_kinds_abstains() -> None:
    rng = random.Random(20)
    found = compare(session(MACHINES["bimodal"], rng, rows=3, slower=0.05), threshold=0.01)
    assert {row.answer for row in found.rows} == {"cannot tell"}
    assert "bimodal" in found.rows[0].why


def changed(trials: Sequence[Trial], side: Side, change: Callable[[Figure], Figure]) -> list[Trial]:
    return [
        Trial(t.block, t.side, {name: change(f) if t.side == side else f for name, f in t.figures.items()}, t.clocks)
        for t in trials
    ]


def quiet(**over: object) -> list[Trial]:
    return list(session(MACHINES["quiet"], random.Random(20), rows=1, **over))  # type: ignore[arg-type]


def only_row(trials: Sequence[Trial], threshold: float = 0.01) -> Row:
    (row,) = compare(trials, threshold).rows
    return row


def test_a_control_that_differs_makes_its_row_abstain() -> None:
    row = only_row(changed(quiet(slower=0.05), "control", lambda figure: slower(figure, 1.04)))
    assert (row.answer, row.why[:27]) == ("cannot tell", "A against itself differs by")


def test_clocks_that_moved_make_all_rows_abstain() -> None:
    def at(side: Side) -> Clocks:
        return Clocks(1980 if side == "b" else 1755, 1500, 1980, 0.0, 0.0)

    trials = [Trial(t.block, t.side, t.figures, at(t.side)) for t in quiet(slower=0.05)]
    assert only_row(trials).why == "the clocks moved: a 1755 MHz, b 1980 MHz, control 1755 MHz"
    same = [Trial(t.block, t.side, t.figures, at("a")) for t in quiet(slower=0.05)]
    assert only_row(same).answer == "slower"


@pytest.mark.parametrize(("unit", "flags"), [("ms", ("constant",)), ("tokens/s", ("constant",)), ("bytes", ())])
def test_a_time_that_never_differs_is_told_to_be_a_constant(unit: str, flags: tuple[str, ...]) -> None:
    def printed(figure: Figure) -> Figure:
        return Figure(figure.identity, unit, "lower", (2.0,))

    trials = quiet()
    for side in SIDES:
        trials = changed(trials, side, printed)
    assert (only_row(trials).answer, only_row(trials).flags) == ("same", flags)
    assert only_row(quiet()).flags == ()


@pytest.mark.parametrize("flag", ["throttled", "shared_gpu", "impossible"])
def test_samples_that_disqualify_themselves_are_not_judged(flag: str) -> None:
    def flagged(figure: Figure) -> Figure:
        return Figure(figure.identity, figure.unit, figure.better, figure.samples, (flag,))

    row = only_row(changed(quiet(slower=0.05), "b", flagged))
    assert (row.answer, row.why) == ("cannot tell", f"{flag} in 20 of 60 runs")


def test_which_way_is_better_decides_what_it_is_called() -> None:
    def higher(figure: Figure) -> Figure:
        return Figure(figure.identity, "1/s", "higher", figure.samples)

    trials = quiet(slower=0.05)
    for side in SIDES:
        trials = changed(trials, side, higher)
    assert only_row(trials).answer == "faster"


def test_a_difference_below_the_threshold_is_not_called() -> None:
    assert only_row(quiet(slower=0.02), threshold=0.03).answer == "same"
    row = only_row(quiet(slower=0.0202), threshold=0.02)
    assert row.answer in ("slower", "cannot tell") and "the interval is" in f"{row.why}the interval is"
    assert only_row(quiet(slower=-0.05)).answer == "faster"


def test_few_blocks_and_absent_rows_say_so() -> None:
    assert only_row(quiet(blocks=5)).why == "only 5 of 5 blocks are whole, expected at least 6"
    trials = [Trial(t.block, t.side, {} if t.side == "b" else t.figures) for t in quiet()]
    assert only_row(trials).why == "b did not measure it"
    rows = compare(session(MACHINES["quiet"], random.Random(3), rows=8, blocks=6), 0.01).rows
    assert {row.answer for row in rows} <= {"same", "cannot tell"}
    half = [t for t in quiet() if t.block or t.side != "b"]
    assert only_row(half).answer == "same"
