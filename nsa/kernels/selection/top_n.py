"""The best blocks of a few queries, exactly and in ascending order: the second half of `select`.

Scores are not negative, so they order as their bits do, and the choice is a cut: the largest number that as many keys
reach as blocks are wanted. It is found by bisection on the bits, from bounds so tight that few steps remain. Only where
equal scores straddle the cut the blocks decide, the lower first.

The candidates of a chunk are a tensor [C, TS, LANES] for TS queries; its first rows hold what earlier chunks left. So
a query stays in one warp, which counts its keys without the others. What `tl.max_contiguous` says below only has the
axes spread in this order, the last over lanes and the one before over warps; masks keep each number by itself.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.selection.scores import LANES, candidates, scores_of_probabilities, scores_of_sums

STEPS_AT_ONCE = tl.constexpr(3)
"""Steps of the bisection between two looks at whether all queries are done."""
MOST = tl.constexpr(0x7FFFFFFF)


# --- the cut ---


@triton.jit
def _count(m_x):
    """How many of m_x [C, TS, LANES] hold for each query [TS]."""
    return tl.sum(tl.sum(m_x.to(tl.int32), 0), 1)


@triton.jit
def _reach(b_key, b_cut):
    """1 where a key reaches its query's cut [TS], which is not negative, else 0: the sign of a difference tells."""
    b_below = (b_cut - 1)[None, :, None] - b_key
    return (b_below.to(tl.uint32, bitcast=True) >> 31).to(tl.int32)


@triton.jit
def _reaching(b_key, b_cut):
    """How many keys of each query reach its cut."""
    return tl.sum(tl.sum(_reach(b_key, b_cut), 0), 1)


@triton.jit
def _cut(b_key, want, TS: tl.constexpr, FREE: tl.constexpr):
    """The cut of each query between its `want` largest keys and the others.

    Args:
        b_key: [C, TS, LANES], negative where there is none.
        want: [TS], at most FREE and at most the query's keys.

    Returns:
        low, high, count [TS]: `count` = want keys reach `low`; or more do, and those of them that do not reach
        `high` = low + 1, which fewer than `want` do, are equal.
    """
    b_lane = tl.max(b_key, 0)  # [TS, LANES]
    high = tl.max(b_lane, 1) + 1
    low = tl.zeros([TS], tl.int32)
    if FREE <= LANES:  # the least of as many keys is reached by as many
        PART: tl.constexpr = 32 if FREE > 16 else (16 if FREE > 8 else 8)
        low = tl.maximum(tl.min(tl.max(tl.reshape(b_lane, [TS, LANES // PART, PART]), 1), 1), low)
    low = tl.where(want > 0, low, high)
    count = _reaching(b_key, low)
    while tl.max(((count != want) & (high - low > 1)).to(tl.int32), 0) > 0:
        for _ in tl.static_range(STEPS_AT_ONCE):
            middle = low + (high - low) // 2
            b_found = _reaching(b_key, middle)
            up = (b_found >= want) & (count != want)
            high = tl.where((b_found >= want) | (count == want), high, middle)
            low = tl.where(up, middle, low)
            count = tl.where(up, b_found, count)
    return low, high, count


@triton.jit
def _taken(b_key, b_block, want, TS: tl.constexpr, FREE: tl.constexpr):
    """Which are the `want` largest keys of each query, int32 [C, TS, LANES]; of equal ones those of lower blocks."""
    low, high, count = _cut(b_key, want, TS, FREE)
    b_in = _reach(b_key, tl.where(count == want, low, high))
    for _ in range(tl.max((count != want).to(tl.int32), 0)):  # Triton 3.0 inlines no function whose `if` calls others
        more = want - tl.sum(tl.sum(b_in, 0), 1)  # 0 where the cut is clean
        m_tie = (b_key == low[None, :, None]) & (more > 0)[None, :, None]
        first, last = tl.full([TS], -1, tl.int32), tl.max(tl.max(b_block, 0), 1)
        while tl.max(last - first, 0) > 1:  # last becomes the lowest block up to which there are enough of them
            middle = first + (last - first) // 2
            enough = _count(m_tie & (b_block <= middle[None, :, None])) >= more
            first, last = tl.where(enough, first, middle), tl.where(enough, middle, last)
        b_in += (m_tie & (b_block <= last[None, :, None])).to(tl.int32)
    return b_in


@triton.jit
def keep_best(
    b_score, i_block, first, last, n_kept, p_kept, m_row,
    FREE: tl.constexpr, TS: tl.constexpr, C: tl.constexpr, KEPT: tl.constexpr, SP: tl.constexpr,
):  # fmt: skip
    """The FREE best of what each query has kept and of new candidates, kept in place.

    Args:
        b_score: [C, TS, LANES], scores of the `candidates` from i_block on; in the first KEPT rows they mean nothing.
        first, last: the first and the last candidate: a number, and [TS].
        n_kept: [TS], how many are kept; 0 without KEPT.
        p_kept: pointers [TS] to int32 [2, SP], the blocks that are kept, in any order, and (with KEPT) their keys.
        m_row: [TS], the queries that exist.

    Returns:
        how many are kept now.
    """
    b_key = tl.minimum(tl.maximum(b_score.to(tl.int32, bitcast=True), 0), MOST - 1)  # NaN is a number too
    b_block = candidates(i_block, C) + tl.zeros_like(b_key)
    # -1 outside, by signs: as many predicates would be kept, and loads wait for each other, for want of registers
    b_key |= ((b_block - first) | (last[None, :, None] - b_block)) >> 31
    if KEPT > 0:
        o_slot = candidates(0, C)
        m_old = (o_slot < n_kept[None, :, None]) & m_row[None, :, None]
        p_old = p_kept[None, :, None] + o_slot
        b_key = tl.where(m_old, tl.load(tl.max_contiguous(p_old + SP, [1, 2, 4]), mask=m_old, other=0), b_key)
        b_block = tl.where(m_old, tl.load(tl.max_contiguous(p_old, [1, 2, 4]), mask=m_old, other=0), b_block)
        tl.debug_barrier()  # every thread has read what was kept
    want = n_kept + tl.maximum(tl.minimum(last + 1, i_block + C * LANES) - first, 0)
    want = tl.minimum(want, FREE)
    b_in = _taken(b_key, b_block, want, TS, FREE)
    b_lane = tl.sum(b_in, 0)  # [TS, LANES]
    o_at = tl.cumsum(b_in, 0) - 1 + (tl.cumsum(b_lane, 1) - b_lane)[None, :, :]
    m_at = m_row[None, :, None] & (b_in != 0)
    p_new = p_kept[None, :, None] + o_at
    tl.store(tl.max_contiguous(p_new, [1, 2, 4]), b_block, mask=m_at)
    if KEPT > 0:
        tl.store(tl.max_contiguous(p_new + SP, [1, 2, 4]), b_key, mask=m_at)
    tl.debug_barrier()  # and now everything is written
    return want


@triton.jit
def store_blocks(
    p_out, p_kept, n_kept, now, m_row,
    INIT: tl.constexpr, LOCAL: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr,
):  # fmt: skip
    """Kept and forced blocks of each query, ascending, -1 at the end, to the pointers p_out [TS].

    now: [TS], the block of each query.
    """
    o_slot = tl.arange(0, SP)
    m_kept = (o_slot[None, :] < n_kept[:, None]) & m_row[:, None]
    m_other = (o_slot[None, None, :] < n_kept[:, None, None]) & m_row[:, None, None]
    b_block = tl.load(p_kept[:, None] + o_slot[None, :], mask=m_kept, other=0)
    b_other = tl.load(p_kept[:, None, None] + o_slot[None, None, :], mask=m_other, other=MOST)
    b_rank = tl.sum((b_other < b_block[:, :, None]).to(tl.int32), 2)
    tl.store(p_out[:, None] + INIT + b_rank, b_block, mask=m_kept)  # where any is kept, INIT are before it
    n_init = tl.minimum(now + 1, INIT)[:, None]
    n_local = tl.minimum(tl.maximum(now + 1 - INIT, 0), LOCAL)[:, None]
    o_local = o_slot[None, :] - n_init - n_kept[:, None]
    b_local = tl.where(o_local < n_local, (now + 1)[:, None] - n_local + o_local, -1)
    m_out = m_row[:, None] & (o_slot < SLOTS)[None, :] & ((o_slot[None, :] < n_init) | (o_local >= 0))
    tl.store(p_out[:, None] + o_slot[None, :], tl.where(o_slot[None, :] < n_init, o_slot[None, :], b_local), mask=m_out)


@triton.jit
def choose(
    p_row, p_kept, p_out, o_seen, now, m_row,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, WIDTH: tl.constexpr, INIT: tl.constexpr, LOCAL: tl.constexpr,
    SLOTS: tl.constexpr, SP: tl.constexpr, TS: tl.constexpr, C: tl.constexpr, KEPT: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """The blocks of TS queries, from what `scores` left of them.

    Args:
        p_row, p_kept, p_out: pointers [TS] to a query's row of the scratch, to its room of int32 [2, SP] and to its
            SLOTS blocks.
        o_seen, now: [TS], how many compressed tokens a query reads, and its block.
        m_row: [TS], the queries that exist.
    """
    FREE: tl.constexpr = SLOTS - INIT - LOCAL
    n_kept = tl.zeros([TS], tl.int32)
    if FREE > 0:
        NEW: tl.constexpr = (C - KEPT) * LANES
        for i in range(INIT // NEW, tl.cdiv(tl.max(now, 0) + 1 - LOCAL, NEW)):
            i_block = i * NEW - KEPT * LANES
            if SUMS:
                b_score = scores_of_sums(p_row, i_block, o_seen, L, D, LS, INIT, LOCAL, TS, C)
            else:
                b_score = scores_of_probabilities(p_row, i_block, o_seen, L, D, LS, WIDTH, INIT, LOCAL, TS, C)
            first = tl.maximum(i * NEW, INIT)
            n_kept = keep_best(b_score, i_block, first, now - LOCAL, n_kept, p_kept, m_row, FREE, TS, C, KEPT, SP)
    store_blocks(p_out, p_kept, n_kept, now, m_row, INIT, LOCAL, SLOTS, SP)
    tl.debug_barrier()  # the next queries overwrite what was kept
