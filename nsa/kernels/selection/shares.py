"""Queries in launches of `select`, by how many candidates they have, and the rows of the scratch that these need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from nsa.config import NSAConfig
from nsa.kernels.common.sizes import cdiv, next_power_of_2
from nsa.kernels.selection.scores import LANES

ROWS = (4, 32)
"""The fewest and the most rows of LANES candidates in a chunk."""
SPLIT = 16
"""Rows of candidates from which on queries with half as many are a launch of their own, which takes half as many."""
ALIGNED = 16
"""Rows of the scratch begin at multiples of so many numbers, so that they can be read as vectors."""


@dataclass(frozen=True)
class Share:
    """Queries whose candidates are taken alike.

    Attributes:
        first, queries: the first query and their number.
        rows: rows of LANES candidates in a chunk.
        kept: how many of these hold what earlier chunks left; 0 where one chunk is all.
        blocks: the most candidates of a query.
    """

    first: int
    queries: int
    rows: int
    kept: int
    blocks: int

    @property
    def new(self) -> int:
        """Candidates that a chunk adds."""
        return (self.rows - self.kept) * LANES.value

    @property
    def before(self) -> int:
        """Where the first block's numbers stand in a row of sums, after room for the kept ones that nobody reads."""
        return 2 * self.kept * LANES.value


@lru_cache
def shares_of(tokens: int, compressed_tokens: int, config: NSAConfig, at_once: int, started: bool) -> tuple[Share, ...]:
    """All queries in launches, the last ones first: those with few candidates would wait for rows that they lack.

    at_once: queries of one tile. started: queries may stand anywhere, and all are alike.
    """
    fewest, most = ROWS
    last_position = max(0, compressed_tokens * config.d + config.l - 2)
    blocks = max(1, last_position // config.l_sel + 1 - config.local_blocks)
    rows, end, found = max(fewest, next_power_of_2(cdiv(blocks, LANES.value))), tokens, []
    while end > 0:
        half = rows // 2 * LANES.value
        split = rows >= SPLIT and not started
        first = min(end, (half + config.local_blocks) * config.l_sel // at_once * at_once) if split else 0
        kept = cdiv(config.n_sel, LANES.value) if rows > most else 0
        held = max(most, 2 * next_power_of_2(kept)) if kept else rows
        if first < end:
            found.append(Share(first, end - first, held, kept, blocks))
        rows, end, blocks = rows // 2, first, min(blocks, half)
    return tuple(found)


def row_length(share: Share, compressed_tokens: int, config: NSAConfig, sums: bool) -> int:
    """Numbers of a row of the scratch: what kept rows would read, then all that is written or read."""
    begin = config.l_sel // config.d
    read, before = cdiv(share.blocks, share.new) * share.new, share.kept * LANES.value
    if sums:
        return 2 * _aligned(before + max(cdiv(compressed_tokens, begin) + 1, read))
    return _aligned(before * begin + max(compressed_tokens, read * begin, 1))


def _aligned(numbers: int) -> int:
    return cdiv(numbers, ALIGNED) * ALIGNED
