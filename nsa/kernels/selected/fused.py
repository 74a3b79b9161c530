"""The gradient of selected attention in one kernel, a branch of `ranges.fused.Gradient`.

A program takes a block of keys and a segment of the queries that chose it, gathers these, and adds their share of dq to
memory in fp32, as the other branches do; so no partial dq is held, and no logits are computed twice. Segments go chunk
by chunk of the queries of a KV head, whose sums then are in the level-2 cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.hopper import launcher_of, unopposed
from nsa.kernels.common.sizes import cdiv, next_power_of_2, pad_group, rows_last, split_dim
from nsa.kernels.ranges import fused
from nsa.kernels.ranges.key_ranges import Borders
from nsa.kernels.selected import chunked_index, inverted_index
from nsa.kernels.selected.inverted_index import Places, Segments
from nsa.kernels.tuning.lookup import Tile

TILES = {64: Tile(64, 64, 8, 4), 128: Tile(64, 64, 8, 3), 192: Tile(64, 64, 8, 2)}
"""By Dk, of the two warpgroups that compute; stages are tiles of queries loaded ahead. It is what the registers and the
shared memory hold."""

ROWS = (2, 64)
"""Of a query, at least and at most, with those that fill them up to a power of two: a tile holds them, and dq takes a
box of TMA for each query."""

BOX = 8
"""Rows of a query that are a box of TMA, at least; fewer are copied one by one."""

SEGMENT_ROWS = 4096
"""Rows of queries in a segment: even work, and enough for the keys that a program loads and the sums that it adds."""

SMALLEST_CHUNK = 16384
"""Rows of a KV head whose dq are added up at the same time, at least: they stay in the level-2 cache."""


# --- where it can run ---


def against(target: str, dtype: torch.dtype, dk: int, dv: int, group: int, deterministic: bool) -> str | None:
    """Why the gradient takes the other kernels: a sentence, or None; as `ranges.fused.against`."""
    reason = fused.against(target, dtype, dk, dv, group, deterministic)
    if reason is None and dk not in TILES:
        return f"head dimension {dk} is not among {', '.join(map(str, TILES))}"
    if reason is None and not ROWS[0] <= pad_group(group) <= ROWS[1]:
        return f"the group size is {group}, not {ROWS[0] // 2 + 1} to {ROWS[1]}"
    if reason is None and split_dim(dk)[1] and pad_group(group) < BOX:
        return f"head dimension {dk} takes groups of {BOX // 2 + 1} heads or more, not {group}"
    return reason


def chosen(q: Tensor, v: Tensor, deterministic: bool) -> bool:
    """Whether the gradient for q [B,T,Hq,Dk] and v [B,S,Hkv,Dv] is made in one kernel: `against` finds nothing."""
    return unopposed(against, *fused.facts_of(q, v, deterministic))


# --- the gradient ---


@dataclass(frozen=True)
class Branch:
    """What the branch attends to: k [B,S,Hkv,Dk], v [B,S,Hkv,Dv], the stats of its rows int64 [B,T,Hq], the chosen
    blocks int32 [N,Hkv,slots], and where they and the queries stand.
    """

    k: Tensor
    v: Tensor
    stats: Tensor
    indices: Tensor
    where: Places

    @classmethod
    def of(
        cls, q: Tensor, k: Tensor, v: Tensor, stats: Tensor, block_indices: Tensor, config: NSAConfig,
        cu_seqlens: Borders, q_start: Tensor | None,
    ) -> Branch:  # fmt: skip
        """Tensors as in `selected_backward`."""
        where = inverted_index.places(q, k, config.l_sel, cu_seqlens, q_start)
        return cls(k, v, stats, rows_last(block_indices.to(torch.int32)).flatten(0, 1), where)

    def share(self, q: Tensor, heads: int) -> Run:
        """See `ranges.fused.Shares`."""
        k, v = fused.made_describable(self.k), fused.made_describable(self.v)
        branch, rows = Branch(k, v, self.stats, self.indices, self.where), pad_group(q.shape[2] // k.shape[2])
        pairs, chunk = pairs_of(rows), chunk_of(self.indices.shape[0], rows)
        return Run(branch, TILES[q.shape[-1]], *fused.sums_for(k, v), pairs, chunk)


@dataclass(frozen=True)
class Run(fused.Share):
    """Of this branch; all launches add to dk and dv.

    Attributes:
        pairs: of a segment, at most.
        chunk: queries whose dq are added up at the same time.
    """

    pairs: int
    chunk: int

    @cached_property
    def segments(self) -> Segments:
        """Those of a KV head one after another, of which those of a chunk of the queries, of which those of a bin."""
        return chunked_index.segments(self.branch.indices, self.branch.where, self.chunk, self.pairs)

    @property
    def keys(self) -> int:
        """Keys of the segments of one KV head."""
        return cdiv(self.branch.indices.shape[0], self.chunk) * self.branch.where.bins

    def at_most(self, heads: int) -> int:
        """So many segments `heads` KV heads have at most."""
        rows, _, slots = self.branch.indices.shape
        return heads * (rows * slots // self.pairs + min(rows * slots, self.branch.where.reachable(self.chunk)))

    def launch(self, q: Tensor, do: Tensor, sums: Tensor, scale: float, first_head: int, run_heads: int) -> None:
        """q and do are contiguous."""
        if self.branch.indices.numel():
            _launcher()(self, q, do, sums, scale, first_head, run_heads)


def pairs_of(rows: int) -> int:
    """Pairs of a segment, with so many rows of each query."""
    return SEGMENT_ROWS // rows


def chunk_of(queries: int, rows: int) -> int:
    """How many of them are a chunk, with so many rows of each. For each chunk a block's keys and sums are moved; of
    more queries fewer in a chunk share a block, so chunks grow too. Measured on an H200 from 4k to 64k queries: of 16
    rows 1,024 are best to 16k, 2,048 from 32k on, of 4 four times as many.
    """
    return max(SMALLEST_CHUNK, 16 * next_power_of_2(8 * math.isqrt(queries))) // rows


_launcher = launcher_of("nsa.kernels.selected.fused_gluon")
