"""What blocks of paired measurements say: how far apart, how sure, and how many of many such answers are chance.

A block measures each side once, in an order drawn at random, and gives one logarithm of their ratio; the next block has
the opposite order, so that drift falls out. What differs from block to block is what the interval is made of.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

SEED = 20
_RESAMPLES = 1000
_CONFIDENCE = 0.95
# Of the blocks, on either side: what is left is near the median, and some that were disturbed do not move it.
_TRIMMED = 0.4


class Effect(NamedTuple):
    """Logarithms of ratios: the middle one, its interval, and how probable one so large is if there is none."""

    middle: float
    low: float
    high: float
    p: float


def effect(blocks: Sequence[float]) -> Effect:
    """Of two blocks at least.

    The middle is a trimmed mean. p is exact by the randomness of the order alone: without a difference each block's
    sign is a coin (Wilcoxon's signed ranks). The interval is a bootstrap over blocks, its percentiles widened for their
    small number as Student's t is (Hesterberg 2015, "expanded percentile").
    """
    rng = random.Random(SEED)
    count = len(blocks)
    kept = slice(int(count * _TRIMMED), count - int(count * _TRIMMED))
    middle = sum(sorted(blocks)[kept]) / (kept.stop - kept.start)
    sums = sorted(sum(sorted(rng.choices(blocks, k=count))[kept]) for _ in range(_RESAMPLES))
    resampled = [total / (kept.stop - kept.start) for total in sums]
    tail = _expanded_tail(count)
    at = min(max(0, round(tail * (_RESAMPLES - 1))), _RESAMPLES // 2)
    return Effect(middle, resampled[at], resampled[-1 - at], signed_rank_p(blocks))


def least_p(blocks: int) -> float:
    """The smallest p that so many blocks can give."""
    return min(1.0, 2.0 ** (1 - blocks))


def are_real(p_values: Sequence[float], rate: float) -> list[bool]:
    """Which of many differences to believe, so that at most `rate` of those believed are chance (Benjamini-
    Hochberg).
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    last = max((rank for rank, i in enumerate(order, 1) if p_values[i] <= rate * rank / len(order)), default=0)
    believed = set(order[:last])
    return [index in believed for index in range(len(p_values))]


def signed_rank_p(values: Sequence[float]) -> float:
    """How probable signs by chance are to lie as unevenly over the values' ranks as they do (both ways)."""
    moved = sorted(filter(None, values), key=abs)
    ranks: list[int] = []  # twice the rank, so that the mean of those that are equal is whole
    for _, group in itertools.groupby(moved, key=abs):
        size = len(list(group))
        ranks += [2 * len(ranks) + size + 1] * size
    total = sum(ranks)
    above = sum(rank for rank, value in zip(ranks, moved, strict=True) if value > 0)
    ways = [1, *[0] * total]  # by the sum of the ranks with a plus: how many of the ways to set signs give it
    for rank in ranks:
        for at in range(total, rank - 1, -1):
            ways[at] += ways[at - rank]
    fewer = min(above, total - above)
    return min(1.0, sum(ways[: fewer + 1]) * 2.0 ** (1 - len(ranks)))


def _expanded_tail(count: int) -> float:
    normal = statistics.NormalDist()
    wide = math.sqrt(count / (count - 1)) * student(count - 1, (1 - _CONFIDENCE) / 2)
    return float(normal.cdf(-wide))


def student(freedom: int, tail: float) -> float:
    """The value that Student's t exceeds with the probability `tail` (Hill 1970; to 1 part in 1,000 from 3 on)."""
    if freedom == 1:
        return math.tan(math.pi * (0.5 - tail))
    if freedom == 2:
        return math.sqrt(2 / (2 * tail * (2 - 2 * tail)) - 2)
    z: float = -statistics.NormalDist().inv_cdf(tail)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / float(freedom) ** power for power, term in enumerate(terms, 1))
