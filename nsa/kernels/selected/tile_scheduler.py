"""How selected attention shares its queries among programs.

A `Schedule` is chosen from shapes alone; where the best one depends on the data (how many blocks neighbouring queries
share), the kernels decide tile by tile on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsa.kernels.common.tiles import next_power_of_2
from nsa.kernels.selected import inverted_index as index

ALWAYS = 1 << 30
"""A union limit that every tile meets."""

WHOLE = index.LEFT_OUT.value - 1
"""A union limit that every tile meets that no block was left out of."""

NEVER = -1
"""A union limit that no tile meets: no union is built."""


@dataclass(frozen=True)
class Schedule:
    """How the queries are shared among programs.

    Attributes:
        most: a tile of neighbouring queries whose union has at most so many blocks is computed as one; the others
            query by query, or as `dense_from` says.
        dense_from: 0, or (schedule `gather`): of the other tiles, blocks that at least so many queries share are
            read by the tile, and the rest by runs of the queries that chose them.
        chunk, heads: queries and KV heads whose partial results are held at once by `gather`; its forward holds those
            of all heads.
        pairs: (query, block) pairs of one run.
    """

    most: int = ALWAYS
    dense_from: int = 0
    chunk: int = 8192
    heads: int = 1
    pairs: int = 128


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
    group: int, tokens: int, slots: int, l_sel: int, widest: int, backward: bool, item: int = 2, rows: int = 1 << 30
) -> Schedule:
    """The schedule for these shapes; where the overlap of neighbours matters, the device decides tile by tile.

    The limits are H200 measurements at 64k tokens, 16 slots of 64 tokens (docs/kernels.md): with 16 heads in a group
    the tile kernel beats the token kernel below a union of about 48 of 64 blocks, and gathering wins in the gradient
    only; with 4 heads gathering wins above about 40 of 256 blocks, but not in the forward pass of so few queries that
    a union has no more blocks than half of its tile's choices: then one kernel does as well as the four of `gather`.

    Args:
        group: query heads of a KV head.
        tokens: neighbouring queries of a tile.
        slots, l_sel: blocks of a query and tokens of a block.
        widest: the larger head dimension.
        backward: for the gradient.
        item: bytes of an element.
        rows: queries in all.
    """
    if tokens == 1:
        return Schedule(most=NEVER)
    if can_gather(l_sel, widest, item, backward):
        if group <= 8 and not backward and rows <= tokens * slots // 2 * l_sel:
            return Schedule()
        if group <= 8:
            chunk, heads = _held(rows, group * slots * widest * item) if backward else (8192, 1)
            return Schedule(tokens * slots * 5 // 32, max(2, tokens // 2), chunk, heads)
        if backward:
            chunk, heads = _held(rows, group * slots * widest * item)
            return Schedule(tokens * slots // 2, 2, chunk, heads)
    return Schedule() if rows <= FEW_ROWS else Schedule(most=tokens * slots * 3 // 4)


def _held(rows: int, size: int) -> tuple[int, int]:
    """Queries and KV heads of a chunk, of `size` bytes for each query and head. One head with all its queries where
    that fits: then no key is in two chunks, whose sums would be read and written once more.
    """
    chunk = min(max(1, rows), MOST_HELD // size)
    return chunk, max(1, FEWEST_HELD // chunk)
