"""A stable sort of small keys by counting, in a few launches, of which none waits for the host or adds atomically.

Keys are taken in rows. Each row counts its keys, and notes of each how many equal ones are before it in the row; the
counts of all rows, added up, say where each row's run of a key belongs among all. Example, rows of 3, keys below 2: of
[1,0,0 | 1,1,0] the rows count (2,1) and (1,2); so 0 begins at 0, 1 at 3, and the second row's runs at 2 and 4.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv

MOST_KEYS = 2048
"""Up to so many keys are counted, as each row has a count of each; beyond, PyTorch sorts (reckoned, not measured)."""

ROW = tl.constexpr(1024)
"""Keys of one row."""

PART = tl.constexpr(256)
"""So many keys of a row are held against each other, one a thread, AGAINST at a time."""

AGAINST = tl.constexpr(32)


@launched
@triton.jit(do_not_specialize=["P", "K"])
def _count_kernel(keys, ranks, counts, P, K):
    """Of a row of the P keys: how many equal ones are before each in the row, and the counts [rows,K] of those below K.
    The others are left out.
    """
    row = tl.program_id(0).to(tl.int64)
    keys += row * ROW
    counts += row * K
    left = P - row * ROW
    e, o_against = tl.arange(0, PART), tl.arange(0, AGAINST)
    for x in range(0, K, PART):
        tl.store(counts + x + e, 0, mask=x + e < K)
    for first in range(0, ROW, PART):
        key = tl.load(keys + first + e, mask=first + e < left, other=K).to(tl.int32)  # [PART]
        after: tl.constexpr = 1 << 16
        equal = tl.zeros([PART], tl.int32)  # those up to itself, and `after` for each behind
        for begin in range(0, PART, AGAINST):
            o = begin + o_against
            other = tl.load(keys + first + o, mask=first + o < left, other=K).to(tl.int32)
            weight = tl.where(o[:, None] <= e[None, :], 1, after)
            equal += tl.sum(tl.where(other[:, None] == key[None, :], weight, 0), 0)  # [AGAINST, PART]
        live = key < K
        tl.debug_barrier()
        before = tl.load(counts + key, mask=live, other=0)
        tl.debug_barrier()
        tl.store(ranks + row * ROW + first + e, before + equal % after - 1, mask=live)
        tl.store(counts + key, before + equal, mask=live & (equal < after))  # by the last of each key


@launched
@triton.jit(do_not_specialize=["rows", "K"])
def _add_up_kernel(counts, edges, rows, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sums of COLUMNS keys' counts over the rows before each row, in their places; those over all rows, to the edges
    where these keys end.
    """
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)  # [COLUMNS]
    total = tl.zeros([COLUMNS], tl.int32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        live = (row < rows)[:, None] & (x < K)[None, :]  # [ROWS, COLUMNS]
        at = row.to(tl.int64)[:, None] * K + x[None, :]
        count = tl.load(counts + at, mask=live, other=0)
        tl.store(counts + at, total[None, :] + tl.cumsum(count, 0) - count, mask=live)
        total += tl.sum(count, 0)
    tl.store(edges + 1 + x, total, mask=x < K)


@triton.jit
def key_of_segment(segment_edges, x, live, K, steps):
    """Binary search: the key of each segment x, the first of K whose segments end beyond it; K where there is none."""
    key, high = tl.zeros_like(x), tl.zeros_like(x) + K
    for _ in range(steps):
        middle = (key + high) // 2
        below = tl.load(segment_edges + middle + 1, mask=live & (key < high), other=0) <= x
        below &= key < high
        key, high = tl.where(below, middle + 1, key), tl.where(below, high, middle)
    return key


@launched
@triton.jit(do_not_specialize=["P", "K", "R", "steps"])
def _place_kernel(keys, ranks, counts, edges, order, segment_edges, segment_key, P, K, R, steps):
    """The keys of one row, each to its place among all; and as many of the R segments, with their keys."""
    x = tl.program_id(0) * ROW + tl.arange(0, ROW)
    tl.store(segment_key + x, key_of_segment(segment_edges, x, x < R, K, steps), mask=x < R)
    row = tl.program_id(0).to(tl.int64)
    e = row * ROW + tl.arange(0, ROW)
    key = tl.load(keys + e, mask=e < P, other=K).to(tl.int32)
    live = key < K
    at = tl.load(edges + key, mask=live, other=0) + tl.load(counts + row * K + key, mask=live, other=0)
    tl.store(order + at + tl.load(ranks + e, mask=live, other=0), e, mask=live)


class CountingSort:
    """The stable sort of keys [P] by those below `last_key`.

    Attributes:
        edges: int32 [last_key+1]; at first how many there are of each key, from the second place on. When they hold
            where each key begins, and all end, `place` can follow.
    """

    def __init__(self, keys: Tensor, last_key: int) -> None:
        self._keys, rows = keys, cdiv(keys.numel(), ROW.value)
        self._ranks = keys.new_empty(keys.shape, dtype=torch.int16)
        self._counts = keys.new_empty(rows, last_key, dtype=torch.int32)
        self.edges = keys.new_empty(last_key + 1, dtype=torch.int32)
        _count_kernel[(rows,)](keys, self._ranks, self._counts, keys.numel(), last_key, num_warps=8)
        _add_up_kernel[(cdiv(last_key, 16),)](self._counts, self.edges, rows, last_key, ROWS=128, COLUMNS=16)

    def place(self, segment_edges: Tensor, segment_key: Tensor) -> Tensor:
        """int64 [P], the places in `keys` of those below `last_key`, by key, then by place; after them anything.

        Args:
            segment_edges: int32 [last_key+1], where each key's segments begin among all, and where all end.
            segment_key: int32 [R]; the key of each segment is written there, `last_key` where there are fewer.
        """
        pairs, segments, last_key = self._keys.numel(), segment_key.numel(), self._counts.shape[1]
        order = self._keys.new_empty(pairs, dtype=torch.int64)
        _place_kernel[(cdiv(max(pairs, segments), ROW.value),)](
            self._keys, self._ranks, self._counts, self.edges, order, segment_edges, segment_key,
            pairs, last_key, segments, last_key.bit_length(),
        )  # fmt: skip
        return order
