"""Trials of two commits and of a control -> for each row: faster, slower, same, or cannot tell, and why."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.figures.model import Clocks, Figure, Identity
from orchestrator.figures.samples import gap_in
from orchestrator.figures.statistics import Effect, are_real, effect, least_p
from orchestrator.plan.blocks import SIDES, Side
from orchestrator.verdict.artifacts.reading import Better, Flag

Answer = Literal["faster", "slower", "same", "cannot tell"]

FALSE_ALARMS = 0.05
"""Of the rows that are called faster or slower, so many may be chance; a control may call so many."""
FEWEST_BLOCKS = 6
"""Fewer cannot tell anything: six that all say the same are one in 32 by chance."""
_CLOCKS_APART = 0.03
# A machine that changes its speed so seldom does so for all sides alike.
_FEW_CHANGES = 3
# From so many rows on a control that calls so large a part of them has failed as a whole.
_CONTROL_ROWS, _CONTROL_FAILED = 4, 0.25
# Units of what no two runs take the same of, to the last digit; bytes, say, may well be the same.
_TIMES = re.compile(r"(?:^|/)(?:s|sec|ms|us|µs|ns|min|h)$")
# Who says these of its own samples has not measured what it wanted to.
_DISQUALIFYING: tuple[Flag, ...] = ("throttled", "shared_gpu", "impossible")


@dataclass(frozen=True)
class Trial:
    """One run of a bench: in which block, of which side, and what it measured; none if it did not pass."""

    block: int
    side: Side
    figures: Mapping[Identity, Figure]
    clocks: Clocks | None = None


@dataclass(frozen=True)
class Interval:
    """B against A, as ratios of what was measured, with its interval of 95 %."""

    ratio: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Row:
    """`answer` is about B; `why` says why it cannot be told. `control` is A against itself. Medians are of each side's
    trials; `runs` and `samples` say how many of each side there are at least; `is_trusted` is False where something
    (the control, the clocks, two groups) keeps the measurements from saying anything."""

    identity: Identity
    unit: str
    better: Better
    a: float | None
    b: float | None
    answer: Answer
    why: str
    measured: Interval | None
    control: Interval | None
    flags: tuple[str, ...]
    runs: int
    samples: int
    is_trusted: bool

    @property
    def excess(self) -> float:
        """By which part B is worse than A; below 0 where it is better."""
        return self._worse(self.measured.ratio) if self.measured else 0.0

    def is_surely_below(self, part: float) -> bool:
        """Whether B can hardly be so much worse: its interval ends below, and nothing keeps it from being judged."""
        if self.measured is None or not self.is_trusted:
            return False
        return max(self._worse(self.measured.low), self._worse(self.measured.high)) < part

    def _worse(self, ratio: float) -> float:
        return ratio - 1 if self.better == "lower" else 1 / ratio - 1


@dataclass(frozen=True)
class Comparison:
    """`threshold` is the least part by which a row is called; `false_alarms` of the `judged` rows were called when A
    was compared with itself."""

    rows: Sequence[Row]
    blocks: int
    threshold: float
    false_alarms: int
    judged: int

    def of(self, answer: Answer) -> list[Row]:
        return [row for row in self.rows if row.answer == answer]


def compare(trials: Iterable[Trial], threshold: float) -> Comparison:
    """What the trials say; rows whose measure has no better direction are left out."""
    known = list(trials)
    blocks = sorted({trial.block for trial in known})
    names = {name: figure for trial in known for name, figure in trial.figures.items() if figure.better != "neither"}
    moved = _clocks_moved(known)
    seen = [_Seen(name, figure, known, blocks, threshold) for name, figure in names.items()]
    timed = [row for row in seen if not row.why]
    false_alarms = _called([row.control for row in timed if row.control], threshold)
    failed = len(timed) >= _CONTROL_ROWS and sum(false_alarms) > _CONTROL_FAILED * len(timed)
    for row, is_called in zip(timed, false_alarms, strict=True):
        row.why = moved or row.abstains(is_called) or ""
        if failed and not row.why:
            row.why = f"A against itself differs in {sum(false_alarms)} of {len(timed)} rows: nothing can be told here"
    left = [row for row in timed if not row.why]
    real = are_real([row.measured.p for row in left if row.measured], FALSE_ALARMS)
    believed = {id(row) for row, is_real in zip(left, real, strict=True) if is_real}
    rows = [row.answered(id(row) in believed, len(left)) for row in seen]
    return Comparison(rows, len(blocks), threshold, sum(false_alarms), len(timed))


def _called(effects: Sequence[Effect], threshold: float) -> list[bool]:
    """Which of them would be called a difference."""
    real = are_real([each.p for each in effects], FALSE_ALARMS)
    return [is_real and _is_apart(each, threshold) for each, is_real in zip(effects, real, strict=True)]


def _is_apart(found: Effect, threshold: float) -> bool:
    return (found.low > 0 or found.high < 0) and abs(found.middle) >= math.log1p(threshold)


class _Seen:
    """One row over all trials; `why` says why it has no answer."""

    def __init__(
        self, name: Identity, figure: Figure, trials: Sequence[Trial], blocks: Sequence[int], threshold: float
    ) -> None:
        self._name, self._figure, self._threshold = name, figure, threshold
        self._found = {
            side: [t.figures[name] for t in trials if t.side == side and name in t.figures] for side in SIDES
        }
        self._medians = {side: [figure.median for figure in found] for side, found in self._found.items()}
        self.measured: Effect | None = None
        self.control: Effect | None = None
        self.why = self._why_not_timed()
        if self.why:
            return
        self._by_block: dict[int, dict[Side, float]] = {block: {} for block in blocks}
        for trial in trials:
            if name in trial.figures:
                self._by_block[trial.block][trial.side] = trial.figures[name].median
        whole = [block for block in self._by_block.values() if len(block) == len(SIDES)]
        if len(whole) < FEWEST_BLOCKS:
            self.why = f"only {len(whole)} of {len(blocks)} blocks are whole, expected at least {FEWEST_BLOCKS}"
            return
        self.measured = effect([math.log(block["b"] / block["a"]) for block in whole])
        self.control = effect([math.log(block["control"] / block["a"]) for block in whole])

    def _why_not_timed(self) -> str:
        absent = [side for side in SIDES if not self._found[side]]
        if absent:
            return f"{' and '.join(absent)} did not measure it"
        if any(median <= 0 for medians in self._medians.values() for median in medians):
            return "it holds values that are not above 0, which have no ratio"
        units = {(figure.unit, figure.better) for found in self._found.values() for figure in found}
        return "the sides measure it in different units" if len(units) > 1 else ""

    def abstains(self, is_false_alarm: bool) -> str:
        """Why the row's own measurements are not to be trusted."""
        found = [figure for figures in self._found.values() for figure in figures]
        for flag in _DISQUALIFYING:
            count = sum(flag in figure.flags for figure in found)
            if count:
                return f"{flag} in {count} of {len(found)} runs"
        two = [side for side in SIDES if self._is_bimodal(side)]
        if two:
            return f"the runs of {' and '.join(two)} fall into two groups (bimodal)"
        if sum("bimodal" in figure.flags for figure in found) * 2 > len(found):
            return "the samples of most runs fall into two groups (bimodal)"
        control = self.control
        if is_false_alarm or (control and control.p <= FALSE_ALARMS and _is_apart(control, self._threshold)):
            return f"A against itself differs by {percent(math.exp(control.middle)) if control else ''}"
        return ""

    def _flags(self) -> tuple[str, ...]:
        """Those of the runs, and `constant`."""
        said = dict.fromkeys(flag for found in self._found.values() for figure in found for flag in figure.flags)
        runs = [medians for medians in self._medians.values() if len(medians) > 1]
        is_constant = _TIMES.search(self._figure.unit) and any(len(set(medians)) == 1 for medians in runs)
        return (*said, *(("constant",) if is_constant else ()))

    def _is_bimodal(self, side: Side) -> bool:
        """Whether runs that follow each other fall into two groups: a machine that changed once did that to all."""
        gap = gap_in(self._medians[side])
        if gap is None:
            return False
        above = [block[side] > gap for block in self._by_block.values() if side in block]
        return sum(one != other for one, other in itertools.pairwise(above)) > _FEW_CHANGES

    def answered(self, is_real: bool, of: int) -> Row:
        answer: Answer = "cannot tell"
        why = self.why
        found = self.measured
        if not why and found:
            answer = self._answer(found, is_real)
            why = self._why_unsure(found, of) if answer == "cannot tell" else ""
        return Row(
            identity=self._name,
            unit=self._figure.unit,
            better=self._figure.better,
            a=_middle(self._medians["a"]),
            b=_middle(self._medians["b"]),
            answer=answer,
            why=why,
            measured=_interval(found),
            control=_interval(self.control),
            flags=self._flags(),
            runs=min(map(len, self._found.values())),
            samples=min(sum(len(figure.samples) for figure in figures) for figures in self._found.values()),
            is_trusted=not self.why,
        )

    def _answer(self, found: Effect, is_real: bool) -> Answer:
        if is_real and _is_apart(found, self._threshold):
            return "slower" if (found.middle > 0) == (self._figure.better == "lower") else "faster"
        edge = math.log1p(self._threshold)
        return "same" if -edge <= found.low and found.high <= edge else "cannot tell"

    def _why_unsure(self, found: Effect, of: int) -> str:
        blocks = sum(len(block) == len(SIDES) for block in self._by_block.values())
        if _is_apart(found, self._threshold) and least_p(blocks) > FALSE_ALARMS / of:
            return f"{blocks} blocks cannot tell one row of {of} from chance: more blocks can"
        return f"the interval is {percent(math.exp(found.low))} to {percent(math.exp(found.high))}"


def percent(ratio: float) -> str:
    """`+1.2 %`."""
    return f"{(ratio - 1) * 100:+.2g} %" if abs(ratio - 1) < 1 else f"x{ratio:.3g}"


def _clocks_moved(trials: Sequence[Trial]) -> str:
    """Whether the GPU ran the sides at different clocks."""
    found = {side: [t.clocks.median for t in trials if t.side == side and t.clocks] for side in SIDES}
    medians = {side: statistics.median(clocks) for side, clocks in found.items() if clocks}
    if medians and max(medians.values()) > min(medians.values()) * (1 + _CLOCKS_APART):
        told = ", ".join(f"{side} {clock:.0f} MHz" for side, clock in medians.items())
        return f"the clocks moved: {told}"
    return ""


def _middle(medians: Sequence[float]) -> float | None:
    return statistics.median(medians) if medians else None


def _interval(found: Effect | None) -> Interval | None:
    if found is None:
        return None
    return Interval(math.exp(found.middle), math.exp(found.low), math.exp(found.high), found.p)
