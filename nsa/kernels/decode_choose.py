"""The second decode kernel: finish compressed attention, score the blocks, choose the best.

Of the programs of one (sequence, KV head) some finish the output of a few heads each; the others score up to `BJ`
blocks each and leave the best of each `AMONG` in falling order; the one that comes last merges these lists.

What takes time is waiting for loads, so loads that need nothing of each other are issued together.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common import LOW, load_pair
from nsa.kernels.decode_rows import query_position, store_columns
from nsa.kernels.launch import launched

ALIGNED = tl.constexpr(4)
"""Logits that are loaded together begin at a multiple of this."""


# --- the output of compressed attention ---


@triton.jit
def _store_merged(
    p_out, b_a, b_w, o_out, m_out,
    HEADS: tl.constexpr, PARTS: tl.constexpr, START: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    b_o = tl.sum(tl.reshape(b_a * b_w[:, None], [HEADS, PARTS, WIDTH]), 1)
    store_columns(p_out, o_out, m_out, b_o, START, WIDTH, D)


@triton.jit
def _merge_heads(
    p_m, p_l, p_a, p_out, i_bh, i_first, S,
    G: tl.constexpr, GP: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    HEADS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The outputs of HEADS heads from i_first on: their S parts, weighted by exp(largest logit), over all sums."""
    o_x = tl.arange(0, HEADS * PARTS)
    o_g = i_first + o_x // PARTS
    m_x = (o_x % PARTS < S) & (o_g < G)
    o_row = (i_bh * S + o_x % PARTS).to(tl.int64) * GP + o_g
    b_m = tl.reshape(tl.load(p_m + o_row, mask=m_x, other=LOW), [HEADS, PARTS])
    b_l = tl.reshape(tl.load(p_l + o_row, mask=m_x, other=0.0), [HEADS, PARTS])
    b_a0, b_a1 = load_pair(p_a, o_row * DV, m_x, DV, DV0, DV1, True)
    b_w = tl.math.exp2(b_m - tl.max(b_m, 1)[:, None])
    b_w = b_w / tl.maximum(tl.sum(b_w * b_l, 1), 1e-30)[:, None]
    b_w = tl.reshape(b_w, [HEADS * PARTS])
    o_head = i_first + tl.arange(0, HEADS)
    o_out = (i_bh * G + o_head).to(tl.int64)
    _store_merged(p_out, b_a0, b_w, o_out, o_head < G, HEADS, PARTS, 0, DV0, DV)
    if DV1 > 0:
        _store_merged(p_out, b_a1, b_w, o_out, o_head < G, HEADS, PARTS, DV0, DV1, DV)


# --- scores ---


@triton.jit
def _part_sums(p_m, p_l, i_bh, S, GP: tl.constexpr, PARTS: tl.constexpr):
    """Each head's largest logits and sums of exponentials [PARTS, GP]."""
    o_s = tl.arange(0, PARTS)
    o_row = (i_bh * S + o_s).to(tl.int64)[:, None] * GP + tl.arange(0, GP)[None, :]
    b_m = tl.load(p_m + o_row, mask=(o_s < S)[:, None], other=LOW)
    b_l = tl.load(p_l + o_row, mask=(o_s < S)[:, None], other=0.0)
    return b_m, b_l


@triton.jit
def _log_sums(b_m, b_l):
    """Log2 of each head's sum of exponentials over all parts [GP]; 0 where there are no keys."""
    b_top = tl.max(b_m, 0)
    b_sum = tl.sum(b_l * tl.math.exp2(b_m - b_top[None, :]), 0)
    return tl.where(b_sum > 0.0, b_top + tl.math.log2(tl.maximum(b_sum, 1e-30)), 0.0)


@triton.jit
def _logits(p_logits, i, i_hi, i_row, s_logits, G: tl.constexpr, GP: tl.constexpr, BT: tl.constexpr):
    """The heads' logits [GP, BT] of the compressed tokens from i on, which is ALIGNED; a few may be beyond i_hi."""
    o_g, o_i = tl.arange(0, GP), i + tl.arange(0, BT)
    p_row = p_logits + (i_row + o_g).to(tl.int64)[:, None] * s_logits
    m_s = (o_g < G)[:, None] & (o_i < tl.cdiv(i_hi, ALIGNED) * ALIGNED)[None, :]
    return tl.load(p_row + o_i[None, :], mask=m_s, other=float("-inf"))


@triton.jit
def _store_probabilities(p_summed, b_s, b_lse, i, i_lo, i_hi, BT: tl.constexpr):
    """Store the probabilities of the compressed tokens from i on that are in [i_lo, i_hi), summed over the heads."""
    o_i = i + tl.arange(0, BT)
    b_p = tl.math.exp2(tl.where((o_i < i_hi)[None, :], b_s - b_lse[:, None], float("-inf")))
    tl.store(p_summed + o_i, tl.sum(b_p, 0), mask=(o_i >= i_lo) & (o_i < i_hi))


@triton.jit
def _block_scores(
    p_summed, o_b, m_b, n,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Scores of the blocks o_b: overlap-weighted sums over the first n compressed tokens."""
    b_score = tl.zeros(o_b.shape, tl.float32)
    o_start = tl.maximum(o_b * LS - L + D, 0) // D  # the first compressed token that reaches into the block
    for i in range(0, WIDTH, STEP):
        for k in tl.static_range(STEP):
            o_i = o_start + i + k  # one beyond WIDTH shares nothing
            b_shared = tl.minimum(o_i * D + L, (o_b + 1) * LS) - tl.maximum(o_i * D, o_b * LS)
            m_i = m_b & (o_i < n) & (b_shared > 0)
            b_score += tl.load(p_summed + o_i, mask=m_i, other=0.0) * b_shared.to(tl.float32)
    return b_score


@triton.jit
def _keys(b_score, o_b, i_end):
    """Keys that fall as blocks get worse: a score's bits above the falling index. Distinct; negative: no candidate."""
    b_key = (b_score.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (0x7FFFFFFF - o_b).to(tl.int64)
    return tl.where(o_b < i_end, b_key, -1 - o_b.to(tl.int64))


# --- the best of all ---


@triton.jit
def _triangle(p_lists, b_list, o_p, FREE: tl.constexpr, FP: tl.constexpr, LISTED: tl.constexpr):
    """Keys of the candidates o_p [N]: number r of the list whose head is the h-th best, for all h + r < FREE.

    No other key can be among the FREE best: h heads and the r keys before it in its own list are better.
    """
    o_h = tl.arange(0, FP)
    b_offset = o_h * FREE - o_h * (o_h - 1) // 2  # candidates of better lists
    m_after = (b_offset[:, None] <= o_p[None, :]) & (o_h > 0)[:, None] & (o_h < FREE)[:, None]
    b_h = tl.sum(m_after.to(tl.int32), 0)
    b_r = o_p - (b_h * FREE - b_h * (b_h - 1) // 2)
    b_from = tl.sum(tl.where(o_h[:, None] == b_h[None, :], b_list[:, None], 0), 0)
    m_p = (b_h + b_r < FREE) & (b_r < LISTED) & (b_from >= 0)
    return tl.load(p_lists + b_from * LISTED + b_r, mask=m_p, other=-1)


@triton.jit
def _candidates(p_lists, b_list, C, o_p, FREE: tl.constexpr, FP: tl.constexpr, LISTED: tl.constexpr, FEW: tl.constexpr):
    """Keys of the candidates o_p [N], -1 where there is none: with FEW lists all that are in them."""
    if FEW:
        b_key = tl.load(p_lists + o_p, mask=o_p < C * LISTED, other=-1)
    else:
        b_key = _triangle(p_lists, b_list, o_p, FREE, FP, LISTED)
    return b_key


@triton.jit
def _best_lists(p_lists, C, FP: tl.constexpr, LISTED: tl.constexpr, CP: tl.constexpr):
    """Numbers of the FP lists with the best heads, in falling order of their heads [FP]; -1 where there is none."""
    o_c = tl.arange(0, CP)
    b_head = tl.load(p_lists + o_c * LISTED, mask=o_c < C, other=-(1 << 40))
    b_rank = tl.where(o_c < C, 0, FP)  # a list that does not exist is never among them
    for j in range(0, C, 32):
        o_j = j + tl.arange(0, 32)
        b_other = tl.load(p_lists + o_j * LISTED, mask=o_j < C, other=-(1 << 40))
        b_rank += tl.sum((b_other[:, None] > b_head[None, :]).to(tl.int32), 0)
    o_h = tl.arange(0, FP)
    return tl.sum(tl.where(b_rank[:, None] == o_h[None, :], o_c[:, None] + 1, 0), 0) - 1


@triton.jit
def _best(
    p_lists, C, FREE: tl.constexpr, FP: tl.constexpr, SP: tl.constexpr, LISTED: tl.constexpr,
    CP: tl.constexpr, CANDIDATES: tl.constexpr, AT_ONCE: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """The FREE best blocks of C lists, int32 [SP], then -1. Ties go to the lower index.

    AT_ONCE candidates are compared with each other at once.
    """
    b_list = tl.arange(0, FP)
    if not FEW:
        b_list = _best_lists(p_lists, C, FP, LISTED, CP)
    o_slot = tl.arange(0, SP)
    b_best = tl.full([SP], 0, tl.int32)
    for i in range(0, CANDIDATES, AT_ONCE):
        b_key = _candidates(p_lists, b_list, C, i + tl.arange(0, AT_ONCE), FREE, FP, LISTED, FEW)
        b_rank = tl.zeros([AT_ONCE], tl.int32)
        for j in range(0, CANDIDATES, AT_ONCE):
            b_other = _candidates(p_lists, b_list, C, j + tl.arange(0, AT_ONCE), FREE, FP, LISTED, FEW)
            b_rank += tl.sum((b_other[:, None] > b_key[None, :]).to(tl.int32), 0)
        b_block = tl.where(b_key >= 0, 0x7FFFFFFF - (b_key & 0x7FFFFFFF), -1).to(tl.int32) + 1
        m_here = (b_rank[:, None] == o_slot[None, :]) & (b_key >= 0)[:, None] & (o_slot < FREE)[None, :]
        b_best += tl.sum(tl.where(m_here, b_block[:, None], 0), 0)
    return b_best - 1


@triton.jit
def _store_chosen(
    p_chosen, b_best, now,
    FREE: tl.constexpr, INIT: tl.constexpr, LOCAL: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr,
):  # fmt: skip
    """The best and the forced blocks, ascending, -1 at the end; `now` is the query's block, -1 where there is none."""
    o_slot = tl.arange(0, SP)
    b_init = o_slot - FREE
    b_local = now - (o_slot - FREE - INIT)
    b_block = tl.where(o_slot < FREE, b_best, -1)
    b_block = tl.where((o_slot >= FREE) & (o_slot < FREE + INIT) & (b_init <= now), b_init, b_block)
    b_block = tl.where((o_slot >= FREE + INIT) & (o_slot < SLOTS) & (b_local >= INIT), b_local, b_block)
    b_order = tl.where(b_block < 0, (1 << 30) + o_slot, b_block)  # distinct
    b_rank = tl.sum((b_order[:, None] < b_order[None, :]).to(tl.int32), 0)
    tl.store(p_chosen + b_rank, b_block, mask=b_rank < SLOTS)


@launched
@triton.jit(do_not_specialize=["C"])
def choose_part(
    p_length, p_now, p_logits, p_summed, p_m, p_l, p_a, p_out, p_lists, p_ticket, p_chosen,
    H, S, C, s_logits,
    G: tl.constexpr, GP: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, WIDTH: tl.constexpr,
    INIT: tl.constexpr, LOCAL: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr, FP: tl.constexpr,
    HEADS: tl.constexpr, PARTS: tl.constexpr, SCORED: tl.constexpr, BJ: tl.constexpr, AMONG: tl.constexpr,
    CP: tl.constexpr, LISTED: tl.constexpr, CANDIDATES: tl.constexpr, AT_ONCE: tl.constexpr, FEW: tl.constexpr,
    STEP: tl.constexpr, BT: tl.constexpr, APPEND: tl.constexpr,
):  # fmt: skip
    """Programs i_c < C score SCORED blocks each and choose, the others finish heads.

    PARTS and CP are S and the number of lists rounded up to a power of two.
    """
    FREE: tl.constexpr = SLOTS - INIT - LOCAL
    LISTS: tl.constexpr = BJ // AMONG
    i_h = tl.program_id(0)
    i_c = tl.program_id(1)
    i_b = tl.program_id(2)
    i_bh = i_b * H + i_h
    i_t = query_position(p_length, p_now, i_b, APPEND)
    if i_c >= C:
        _merge_heads(p_m, p_l, p_a, p_out, i_bh, (i_c - C) * HEADS, S, G, GP, DV, DV0, DV1, HEADS, PARTS)
    else:
        now = tl.where(i_t >= 0, tl.maximum(i_t, 0) // LS, -1)
        i_end = tl.maximum(now + 1 - LOCAL, INIT)  # blocks [INIT, i_end) are free to be chosen
        p_mine = p_lists + i_bh.to(tl.int64) * (C * LISTS) * LISTED
        if FREE > 0:
            b_m, b_l = _part_sums(p_m, p_l, i_bh, S, GP, PARTS)
            n = tl.maximum(i_t + 1 - L + D, 0) // D
            i_lo = INIT + i_c * SCORED
            i_next = tl.minimum(i_lo + SCORED, i_end)
            i_first = tl.maximum(i_lo * LS - L + D, 0) // D
            i_last = tl.where(i_lo < i_next, tl.minimum((i_next * LS + D - 1) // D, n), i_first)
            p_summed += i_bh.to(tl.int64) * s_logits
            i_from = i_first // ALIGNED * ALIGNED
            b_s = _logits(p_logits, i_from, i_last, i_bh * G, s_logits, G, GP, BT)
            b_lse = _log_sums(b_m, b_l)
            _store_probabilities(p_summed, b_s, b_lse, i_from, i_first, i_last, BT)
            for i in range(i_from + BT, i_last, BT):  # none, by default sizes
                b_s = _logits(p_logits, i, i_last, i_bh * G, s_logits, G, GP, BT)
                _store_probabilities(p_summed, b_s, b_lse, i, i_first, i_last, BT)
            tl.debug_barrier()  # other threads read it than wrote it
            o_list = tl.arange(0, LISTS)[:, None]
            o_b = i_lo + o_list * AMONG + tl.arange(0, AMONG)[None, :]
            b_score = _block_scores(p_summed, o_b, o_b < i_next, n, L, D, LS, WIDTH, STEP)
            b_key = _keys(b_score, o_b, i_next)
            b_rank = tl.sum((b_key[:, :, None] > b_key[:, None, :]).to(tl.int32), 1)
            tl.store(p_mine + (i_c * LISTS + o_list) * LISTED + b_rank, b_key, mask=b_rank < LISTED)
        tl.debug_barrier()  # every thread has stored before one of them says so
        if tl.atomic_add(p_ticket + i_bh, 1, sem="acq_rel") == C - 1:
            b_best = tl.full([SP], -1, tl.int32)
            if FREE > 0:
                b_best = _best(p_mine, C * LISTS, FREE, FP, SP, LISTED, CP, CANDIDATES, AT_ONCE, FEW)
            _store_chosen(p_chosen + i_bh * SLOTS, b_best, now, FREE, INIT, LOCAL, SLOTS, SP)
            tl.store(p_ticket + i_bh, 0)
    if APPEND:  # at the end, because no load may overtake a store
        tl.store(p_length + i_b, i_t.to(tl.int64) + 1, mask=(i_h == 0) & (i_c == 0))
