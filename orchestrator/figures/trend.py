"""Where a row of figures changed its level, from run to run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_FEWEST = 3
"""Points on either side of a step: one or two may be chance."""
_BESIDE = 2
_LEAST = 0.01
"""A level that moved by less, in parts of itself, has not."""
# Of the universal threshold sqrt(2 log n): by simulation (tests/figures/test_trend.py), what keeps rows without a step,
# whatever their noise is like, below one false alarm in twenty.
_STRICT = 1.9
_AS_DEVIATION = 1.4826  # from the median of absolute deviations


class Step(NamedTuple):
    """The level, as medians, changed at the point numbered `at`."""

    at: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


def steps(values: Sequence[float]) -> list[Step]:
    """Where the level of `values` changed: binary segmentation by the CUSUM statistic (Vostrikova 1981), over medians
    of five, so that a run or two that went wrong are no step. Noise is what neighbours differ by.
    """
    smooth = [statistics.median(values[max(0, n - _BESIDE) : n + _BESIDE + 1]) for n in range(len(values))]
    noise = _noise(values)
    cuts: list[int] = []
    open_ = [(0, len(values))]
    while open_:
        low, high = open_.pop()
        at = _cut(smooth, low, high, noise * _STRICT * math.sqrt(2 * math.log(max(len(values), 2))))
        if at is not None:
            cuts.append(at)
            open_ += [(low, at), (at, high)]
    edges = [0, *sorted(cuts), len(values)]
    levels = [statistics.median(values[low:high]) for low, high in pairwise(edges)] if values else []
    found = (Step(at, before, after) for at, (before, after) in zip(edges[1:-1], pairwise(levels), strict=True))
    return [step for step in found if step.before and abs(step.ratio - 1) >= _LEAST]


def _noise(values: Sequence[float]) -> float:
    """The standard deviation without the steps; never nothing."""
    if len(values) < 2:
        return math.inf
    differences = [abs(after - before) for before, after in pairwise(values)]
    least = _LEAST / 10 * abs(statistics.median(values))
    return max(_AS_DEVIATION * statistics.median(differences) / math.sqrt(2), least, 1e-300)


def _cut(values: Sequence[float], low: int, high: int, threshold: float) -> int | None:
    """Where the means of both sides differ most, if that is more than noise."""
    count = high - low
    whole = math.fsum(values[low:high])
    best, at, left = threshold, None, 0.0
    for n in range(1, count - _FEWEST + 1):
        left += values[low + n - 1]
        if n < _FEWEST:
            continue
        statistic = abs(left - n / count * whole) / math.sqrt(n * (count - n) / count)
        if statistic > best:
            best, at = statistic, low + n
    return at
