"""What samples say of themselves: how far they spread, and whether they are of two kinds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from orchestrator.verdict.artifacts.reading import Flag

# The middle half of the samples, in parts of their median.
_NOISY = 0.1
_FEWEST = 8
# Two groups are two where each holds a fifth of the samples, and their centres are farther apart than so many of their
# own deviations (Ashman's D), and by so much. Few samples fall apart by chance: by simulation, one in fifty sets of
# normal, exponential, log-normal, uniform and heavy-tailed samples comes near this for any number of them.
_APART_D, _APART_D_OF_FEW = 5.0, 50.0
_APART = 0.01
_LEAST_SHARE = 0.2


def flags_of(samples: Sequence[float]) -> list[Flag]:
    """Which of `noisy` and `bimodal` they are; too few are neither."""
    if len(samples) < _FEWEST:
        return []
    found: list[Flag] = []
    low, middle, high = statistics.quantiles(samples, n=4)
    if middle and (high - low) / abs(middle) > _NOISY:
        found.append("noisy")
    if is_bimodal(samples):
        found.append("bimodal")
    return found


def is_bimodal(samples: Sequence[float]) -> bool:
    """Whether the samples fall into two groups that are far apart, each of a fifth of them at least."""
    return gap_in(samples) is not None


def gap_in(samples: Sequence[float]) -> float | None:
    """A value between the two groups of bimodal samples; None if they are one."""
    if len(samples) < _FEWEST:
        return None
    ordered = sorted(samples)
    fewest = max(2, math.ceil(len(ordered) * _LEAST_SHARE))
    cuts = range(fewest, len(ordered) - fewest + 1)
    cut = max(cuts, key=lambda at: ordered[at] - ordered[at - 1])  # the widest gap
    low, high = ordered[:cut], ordered[cut:]
    distance = statistics.fmean(high) - statistics.fmean(low)
    spread = math.sqrt((statistics.pvariance(low) + statistics.pvariance(high)) / 2)
    wanted = _APART_D + _APART_D_OF_FEW / len(ordered)
    apart = distance > _APART * abs(statistics.fmean(ordered)) and distance > wanted * spread
    return (low[-1] + high[0]) / 2 if apart else None
