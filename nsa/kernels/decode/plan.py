"""Into how many programs a decode step is split: sizes and capacities decide, never what the device holds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.sizes import SMALLEST_DOT, cdiv, next_power_of_2, pad_group
from nsa.kernels.tuning.lookup import Tile, architecture_for, config_for, multiprocessors

LARGEST_PART = 64
"""Heads that a program holds."""
MOST_SPLITS = 64
LANES = (32, 64, 128, 256)
"""Blocks that a program of the second kernel may score."""
MOST_SUMS = 4096
"""Sums of blocks, of all heads, that it may hold."""
AMONG = 32
"""Blocks that are compared with each other: their best are a list."""
SCORERS = 3
"""Programs of the second kernel that score, on each multiprocessor."""
FEW = 128
"""If all lists together hold no more keys, it compares all of them instead of looking for the best lists first."""
MERGED = 64
"""Splits of compressed attention, of all its heads, that a program of the second kernel adds up."""
GATHERERS = 3
"""Programs of the third kernel on each multiprocessor."""
SUMMED = 8192
"""Numbers that the third kernel adds up at once; half as many where it must fit several times on a multiprocessor, and
where rows are wider than WIDE bytes: their sums need the registers."""
WIDE = 256
MOST_KEYS = 512


@dataclass(frozen=True)
class Sizes:
    """What the buffers between the kernels depend on: `parts` of `group` heads share a KV head; `tokens` of the queries
    are of one sequence.
    """

    queries: int
    tokens: int
    kv_heads: int
    parts: int
    group: int
    dk: int
    dv: int
    compressed: int
    blocks: int
    slots: int
    config: NSAConfig
    dtype: torch.dtype

    @property
    def rows(self) -> int:
        """Rows of a program: a part's heads, at least as many as a product of tiles takes."""
        return max(SMALLEST_DOT, pad_group(self.group))

    @property
    def pairs(self) -> int:
        """(query, KV head) pairs, for each of which blocks are chosen."""
        return self.queries * self.kv_heads

    @property
    def units(self) -> int:
        """(query, part) pairs: programs that attend, if nothing were split."""
        return self.pairs * self.parts

    @property
    def free(self) -> int:
        """Blocks that scores choose."""
        return self.config.n_sel - self.config.init_blocks - self.config.local_blocks

    @property
    def candidates(self) -> int:
        """The most blocks that they choose from, and the forced ones before these."""
        return self.blocks - self.config.local_blocks


@dataclass(frozen=True)
class Programs:
    """How many programs do what: in the second kernel, but for `selected`, those of the third.

    Attributes:
        parts: of a pair.
        scorers: of a pair, choose blocks.
        heads, window, selected: of a part, finish heads of compressed attention, attend to the window, to the blocks.
        apart: whether the window has a kernel of its own.
    """

    parts: int
    scorers: int
    heads: int
    window: int
    selected: int
    apart: bool

    @property
    def second(self) -> int:
        """All of the second kernel, of a pair."""
        return self.scorers + self.parts * (self.heads + self.beside)

    @property
    def beside(self) -> int:
        """Those of the second kernel that attend to the window, of a part."""
        return 0 if self.apart else self.window

    @property
    def splits(self) -> int:
        """Partial results that the third kernel adds up: first of the selected blocks, then of the window."""
        return self.selected + self.window


@lru_cache
def parts_of(group: int) -> int:
    """Into how many equal parts a group of heads is cut: as few as there are of at most `LARGEST_PART` heads."""
    return next(parts for parts in range(cdiv(group, LARGEST_PART), group + 1) if group % parts == 0)


def at_least_two(count: int) -> int:
    """The count rounded up to a power of two that a kernel can reduce over."""
    return max(2, next_power_of_2(count))


def keys_of(tile: Tile, rows: int) -> int:
    """Keys of a tile with so many rows: wide groups take fewer at once."""
    return max(SMALLEST_DOT, tile.BN * tile.BM // max(rows, tile.BM))


@dataclass(frozen=True)
class Plan:
    """Into how many programs the work is split.

    Attributes:
        splits: of the compressed tokens.
        lanes, among: blocks that a program of the second kernel scores, and how many of these make a list of the best.
        few: keys in all lists of a pair up to which these are compared without looking for the best lists first.
        keys: that one program takes of the selected blocks or of the window.
        summed: numbers that the third kernel adds up at once.
        first, third: tiles of the first and third kernel.
    """

    splits: int
    lanes: int
    among: int
    few: int
    keys: int
    summed: int
    first: Tile
    third: Tile

    def scorers(self, sizes: Sizes) -> int:
        """Programs of the second kernel that score the blocks of a pair."""
        return max(1, cdiv(sizes.candidates, self.lanes))

    def lists(self, sizes: Sizes) -> int:
        """Lists of the best blocks that these leave for a pair."""
        return self.scorers(sizes) * self.lanes // self.among

    def listed(self, sizes: Sizes) -> int:
        """Blocks of a list."""
        return max(1, min(sizes.free, self.among))

    def heads(self, sizes: Sizes) -> int:
        """Heads that a program of the second kernel finishes, a power of two."""
        return min(sizes.rows, max(1, MERGED // at_least_two(self.splits)))

    def programs(self, sizes: Sizes, branches: Collection[str], slots: int, select: bool) -> Programs:
        """The programs of a step with `slots` blocks, which it chooses itself with `select`."""
        config, scored = sizes.config, select or "cmp" in branches
        return Programs(
            sizes.parts,
            self.scorers(sizes) if select else 0,
            cdiv(sizes.group, self.heads(sizes)) if scored else 0,
            cdiv(config.w, self.keys) if "win" in branches else 0,
            cdiv(slots * config.l_sel, self.keys) if "sel" in branches else 0,
            sizes.tokens > 1,
        )


def plan_for(sizes: Sizes, q: Tensor, v: Tensor) -> Plan:
    """Enough programs to fill the device, and no more."""
    first, third = config_for("decode_compressed", q, v), config_for("decode_combine", q, v)
    if architecture_for(q) is None:
        # several of everything, even for the small shapes of a test
        return Plan(3, 8, 4, few=16, keys=2 * third.BN, summed=SUMMED, first=first, third=third)
    processors, config = multiprocessors(q.device), sizes.config
    splits = first.resident * processors // sizes.units
    splits = max(1, min(MOST_SPLITS, splits, cdiv(sizes.compressed, first.BN)))
    read = sizes.units * sizes.slots * config.l_sel
    keys = next_power_of_2(cdiv(read, GATHERERS * processors))
    keys = max(2 * third.BN, min(MOST_KEYS, keys))
    roomy = read <= keys * processors and max(sizes.dk, sizes.dv) * q.element_size() <= WIDE
    summed = SUMMED if roomy else SUMMED // 2
    fit = (lanes for lanes in LANES if sizes.pairs * cdiv(sizes.candidates, lanes) <= SCORERS * processors)
    lanes = max(min(LANES), min(next(fit, max(LANES)), MOST_SUMS // sizes.rows))
    return Plan(splits, lanes, AMONG, FEW, keys, summed, first, third)
