"""How selected attention shares its queries among programs.

A `Schedule` is chosen from shapes alone; where the best one depends on the data (how many blocks neighbouring queries
share), the kernels decide tile by tile on the device. A `Problem` holds the operands of a call and what its launches
share, `Lists` the blocks that a kernel reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.sizes import dot_precision, next_power_of_2, pad_group, rows_last
from nsa.kernels.common.tma import key_tiles, use_tma
from nsa.kernels.ranges.key_ranges import Borders
from nsa.kernels.selected import inverted_index
from nsa.kernels.tuning.lookup import config_for

ALWAYS = 1 << 30
"""A union limit that every tile meets."""

WHOLE = inverted_index.LEFT_OUT.value - 1
"""A union limit that every tile meets that no block was left out of."""

NEVER = -1
"""A union limit that no tile meets: no union is built."""


@dataclass(frozen=True)
class Schedule:
    """How the queries are shared among programs.

    Attributes:
        most: a tile of neighbouring queries whose union has at most so many blocks is computed as one; the others
            query by query (the forward after the blocks that two of them share), or as `dense_from` says.
        dense_from: 0, or (schedule `gather`): of the other tiles, blocks that at least so many queries share are
            read by the tile, and the rest by segments of the queries that chose them.
        chunk, heads: queries and KV heads whose partial results are held at once by `gather`; its forward holds as many
            as of all heads.
        pairs: (query, block) pairs of one segment, in the forward pass.
    """

    most: int = ALWAYS
    dense_from: int = 0
    chunk: int = 8192
    heads: int = 1
    pairs: int = 256


FEW_ROWS = 16384
"""Queries among whose blocks unions stay small enough to need no second kernel (measured on an H200)."""

GATHER_LARGEST_BLOCK = {2: 64 * 256, 4: 64 * 64}
"""Elements of a block of keys, by bytes of one: the gather kernels keep it and the values on chip, on sm_89 too."""

GATHER_LARGEST_GRADIENT = 64 * 128
"""The same for the gradient."""


MOST_HELD = 1 << 31
"""Bytes of partial dq that `gather` holds at once."""

FEWEST_HELD = 8192
"""Queries times KV heads whose partial dq it holds at once, at least: fewer would not fill the card."""


def can_gather(l_sel: int, widest: int, item: int, backward: bool) -> bool:
    """Whether blocks of l_sel tokens, `widest` elements of `item` bytes each, leave the gather kernels enough room.

    The gathered gradient holds more beside them, and wider heads than 128 do not leave it enough registers.
    """
    most = GATHER_LARGEST_BLOCK[item]
    if backward:
        most = 0 if widest > 128 else min(most, GATHER_LARGEST_GRADIENT)
    return max(16, next_power_of_2(l_sel)) * widest <= most


def choose_schedule(
    group: int, tokens: int, slots: int, l_sel: int, widest: int, backward: bool, item: int = 2, rows: int = 1 << 30,
    blocks: int = 1 << 30, tma: bool = False,
) -> Schedule:  # fmt: skip
    """The schedule for these shapes; where the overlap of neighbours matters, the device decides tile by tile.

    The limits are H200 measurements at 64k tokens, 16 slots of 64 tokens (docs/kernels.md): with 16 heads in a group
    the tile kernel by TMA is the best for any union at 128/128, and to about 40 of 64 blocks at 192/128, and gathering
    wins in the gradient only; with 4 heads gathering wins above about 64 of 256 blocks, 40 in the gradient. Where a
    sequence has no more blocks than a tile takes whole, nothing would be gathered; and in the forward pass, up to half
    of the tile's choices, one kernel does as well as those of `gather`.

    Args:
        group: query heads of a KV head.
        tokens: neighbouring queries of a tile.
        slots, l_sel: blocks of a query and tokens of a block.
        widest: the larger head dimension.
        backward: for the gradient.
        item: bytes of an element.
        rows: queries in all.
        blocks: of one sequence, at most.
        tma: whether keys and values come by TMA.
    """
    if tokens == 1:
        return Schedule(most=NEVER)
    if (group <= 8 or backward) and can_gather(l_sel, widest, item, backward):
        half = tokens * slots // 2
        most, dense_from = half, 2
        if group <= 8:
            most, dense_from = tokens * slots * (5 if backward else 8) // 32, max(2, tokens // 2)
        if blocks <= (most if backward else half):
            return Schedule()
        chunk, heads = _held(rows, group * slots * widest * item) if backward else (8192, 1)
        return Schedule(most, dense_from, chunk, heads)
    if rows <= FEW_ROWS or (tma and widest <= 128 and not backward):
        return Schedule()
    return Schedule(most=tokens * slots * (6 if backward else 5) // 8)


def _held(rows: int, size: int) -> tuple[int, int]:
    """Queries and KV heads of a chunk, of `size` bytes for each query and head. One head with all its queries where
    that fits: then no key is in two chunks, whose sums would be read and written once more.
    """
    chunk = min(max(1, rows), MOST_HELD // size)
    return chunk, max(1, FEWEST_HELD // chunk)


# --- what is shared out ---


@dataclass(frozen=True)
class Chunk:
    """`rows` queries from `first` on and `heads` KV heads from `head` on, whose parts are held together."""

    first: int
    rows: int
    head: int
    heads: int


@dataclass(frozen=True)
class Problem:
    """The flattened operands of one call: q [N,Hq,Dk], k [M,Hkv,Dk], v [M,Hkv,Dv], indices [N,Hkv,slots]; k and v
    [1,M,Hkv,D*], and whether these can be loaded by descriptor.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    indices: Tensor
    where: inverted_index.Places
    scale: float
    one_batch: tuple[Tensor, Tensor]
    tma: bool

    @cached_property
    def heads(self) -> int:
        return self.k.shape[1]

    @cached_property
    def group(self) -> int:
        return self.q.shape[1] // self.heads

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Token and head strides of q, k and v."""
        return (*self.q.stride()[:2], *self.k.stride()[:2], *self.v.stride()[:2])

    @cached_property
    def sizes(self) -> dict[str, Any]:
        """Compile-time arguments that all kernels share."""
        return {
            "H": self.heads, "G": self.group, "GP": pad_group(self.group), "LB": self.where.l_sel,
            "SLOTS": self.indices.shape[-1], "PREC": dot_precision(self.q.dtype), "DK": self.q.shape[-1],
            "DV": self.v.shape[-1],
        }  # fmt: skip

    def tile(self, kernel: str, tma: bool = False) -> dict[str, int]:
        """The tile and the warps of `kernel`."""
        return config_for(kernel + "_tma" if tma else kernel, self.q, self.v).launch(pad_group(self.group))

    def launch(self, kernel: str, tma: bool = False) -> dict[str, Any]:
        """The compile-time arguments of `kernel`; a tile of keys is no longer than a block."""
        tile = self.tile(kernel, tma)
        return {**self.sizes, **tile, "BN": min(tile["BN"], self._longest_tile)}

    @property
    def _longest_tile(self) -> int:
        return max(16, next_power_of_2(self.where.l_sel))

    def by_tma(self, tile: bool) -> bool:
        """Whether the tile or the token kernel takes keys and values by TMA. What lies in a tile behind the end of its
        block, the tile kernel leaves out when it computes again, which the token kernel does not.
        """
        return self.tma and (tile or self.where.l_sel == self._longest_tile)

    def schedule(self, kernel: str, backward: bool) -> Schedule:
        """What `choose_schedule` names for this problem and the tiles of `kernel`."""
        tokens = self.tile(kernel)["BM"] // pad_group(self.group)
        widest = max(self.q.shape[-1], self.v.shape[-1])
        rows, slots, item = self.indices.shape[0], self.indices.shape[-1], self.q.element_size()
        return choose_schedule(
            self.group, tokens, slots, self.where.l_sel, widest, backward, item, rows, self.where.longest, self.tma
        )

    def descriptors(self, rows: int, wanted: bool) -> tuple[Any, ...]:
        """Tiles of `rows` keys for TMA: two parts of k and two of v, None for what there is not."""
        k, v = self.one_batch
        return (*key_tiles(k, rows, wanted), *key_tiles(v, rows, wanted))


def problem_of(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, scale: float,
    cu_seqlens: Borders, q_start: Tensor | None,
) -> Problem:  # fmt: skip
    where = inverted_index.places(q, k, config.l_sel, cu_seqlens, q_start)
    q, k, v, indices = (rows_last(x).flatten(0, 1) for x in (q, k, v, block_indices.to(torch.int32)))
    one_batch = k[None], v[None]
    return Problem(q, k, v, indices, where, scale, one_batch, use_tma(*one_batch))


def by_tile_or_token(p: Problem, schedule: Schedule, what: str, launch: Callable[..., None]) -> None:
    """Tiles with small unions by the tile kernel of `what`, the queries of the others by its token kernel.

    launch: takes the problem, a kernel's compile-time arguments, the union, and of how many queries its tiles are.
    """
    sizes = p.launch(f"selected_tile_{what}", p.tma)
    tokens, union = sizes["BM"] // sizes["GP"], None
    if schedule.most != NEVER:
        union = inverted_index.union(p.indices, p.where, tokens)
        launch(p, sizes, union, tokens, most=schedule.most)
    if schedule.most != ALWAYS:
        sizes = p.launch(f"selected_token_{what}", p.by_tma(tile=False))
        launch(p, sizes, union, tokens, most=schedule.most, tile=False)


@dataclass(frozen=True)
class Lists:
    """The blocks that a kernel reads: a tile's union, or each query's own or those that the union left out. What a
    kernel does not read stands in.

    Attributes:
        blocks: first keys [Hkv,tiles,U] or indices [N,Hkv,slots]; members; counts.
        strides: of the indices; 0 for a union.
        tiles, width: tiles of the union and its U.
        rest: what the union left out, its lists or keys.
        rest_keys: as of the union.
    """

    blocks: tuple[Tensor, Tensor, Tensor]
    strides: tuple[int, int]
    tiles: int
    width: int
    rest: Tensor
    rest_keys: int

    @classmethod
    def of(cls, p: Problem, union: inverted_index.Union | None, tile: bool) -> Lists:
        if union is None:
            return cls((p.indices,) * 3, p.indices.stride()[:2], 0, 0, p.indices, 0)
        rest = next((x for x in (union.lists, union.keys) if x is not None), union.count)
        own = p.indices if union.lists is None else union.lists
        first, strides = (union.starts, (0, 0)) if tile else (own, own.stride()[:2])
        tiles, width = union.starts.shape[1:]
        return cls((first, union.members, union.count), strides, tiles, width, rest, union.rest_keys)
