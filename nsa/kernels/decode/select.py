"""The second decode kernel: finish compressed attention, score the blocks, choose the best, attend to the window.

Of the programs of one (sequence, KV head) some finish the output of a few heads each, some attend with a part of the
heads to a split of the window; the others score `BJ` blocks each and leave the best of each `AMONG` in falling order;
the one that comes last merges these lists.

What takes time is waiting for loads, so loads that need nothing of each other are issued together; and the window,
which needs none of the rest, is read here because the others leave the memory idle.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.launch import launched
from nsa.kernels.common.softmax import begin
from nsa.kernels.common.tiles import LOW, load_pair, store_pair
from nsa.kernels.decode.rows import attend, load_queries, over_splits, query_position, store_partial
from nsa.kernels.decode.scores import scores

# --- the output of compressed attention ---


@triton.jit
def _merge_heads(
    p_m, p_l, p_a, p_out, i_bp, i_first, S,
    G: tl.constexpr, GP: tl.constexpr, DV: tl.constexpr, HEADS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The outputs of HEADS heads from i_first on: their S splits, weighted by exp(largest logit), over all sums.

    Splits are the slowest axis, so that each warp adds up heads of its own.
    """
    o_x = tl.arange(0, SPLITS * HEADS)
    o_s, o_g = o_x // HEADS, i_first + o_x % HEADS
    m_x = (o_s < S) & (o_g < G)
    o_row = (i_bp * S + o_s).to(tl.int64) * GP + o_g
    b_m = tl.reshape(tl.load(p_m + o_row, mask=m_x, other=LOW), [SPLITS, HEADS])
    b_l = tl.reshape(tl.load(p_l + o_row, mask=m_x, other=0.0), [SPLITS, HEADS])
    b_a0, b_a1 = load_pair(p_a, o_row * DV, m_x, DV, True)
    b_w, _, b_sum = over_splits(b_m, b_l, 0)
    b_w = tl.reshape(b_w / tl.maximum(b_sum, 1e-30)[None, :], [SPLITS * HEADS])[:, None]
    b_o0 = tl.sum(tl.reshape(b_a0 * b_w, [SPLITS, HEADS, b_a0.shape[1]]), 0)
    b_o1 = tl.sum(tl.reshape(b_a1 * b_w, [SPLITS, HEADS, b_a1.shape[1]]), 0)
    o_head = i_first + tl.arange(0, HEADS)
    store_pair(p_out, (i_bp * G + o_head).to(tl.int64) * DV, o_head < G, b_o0, b_o1, DV, False)


# --- attention to the window ---


@triton.jit
def _window_split(
    p_q, p_wk, p_wv, p_m, p_l, p_a, p_seen, i_b, i_p, i_h, i_t, i_w, i_partial, H, s_qb, s_qh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, W: tl.constexpr, KEYS: tl.constexpr,
    BN: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Attention to the keys [i_w * KEYS, (i_w + 1) * KEYS) of the ring: partial result number i_w from i_partial on."""
    b_q0, b_q1 = load_queries(p_q, i_b, i_p, s_qb, s_qh, G, GP, DK)
    b_m, b_l, b_a0, b_a1 = begin(GP, DV, True, False)
    b_seen = tl.zeros([BN], tl.int32)
    i_lo = i_w * KEYS
    i_hi = tl.minimum(tl.minimum(i_lo + KEYS, W), i_t + 1)  # all that the ring holds; its order is no matter
    for i in range(i_lo, i_hi, BN):
        o_x = i + tl.arange(0, BN)
        m_key = o_x < i_hi
        o_row = (i_b.to(tl.int64) * W + o_x) * H + i_h
        _, b_m, b_l, b_a0, b_a1 = attend(
            b_q0, b_q1, b_m, b_l, b_a0, b_a1, p_wk, p_wv, o_row, m_key, scale, DK, DV, PREC
        )
        b_seen += m_key.to(tl.int32)
    store_partial(p_m, p_l, p_a, p_seen, i_partial + i_w, b_m, b_l, b_a0, b_a1, b_seen, G, GP, DV)


# --- the best of all ---


@triton.jit
def _keys(b_score, o_b, m_b):
    """Keys that fall as blocks get worse: a score's bits above the falling index. Distinct; negative: no candidate."""
    b_key = (b_score.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (0x7FFFFFFF - o_b).to(tl.int64)
    return tl.where(m_b, b_key, -1 - o_b.to(tl.int64))


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
@triton.jit(do_not_specialize=["H", "S", "C", "C_WIN", "N_SEL", "N"])
def select_kernel(
    p_q, p_length, p_now, p_wk, p_wv, p_sums, p_zero, p_summed, p_m, p_l, p_a, p_out, p_lists, p_ticket, p_chosen,
    p_m3, p_l3, p_a3, p_seen3,
    H, S, C, C_WIN, N_SEL, N, s_qb, s_qh, s_sums, s_zero, HALF, s_summed, scale,
    TOKENS: tl.constexpr, PARTS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, W: tl.constexpr, WIDTH: tl.constexpr,
    INIT: tl.constexpr, LOCAL: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr, FP: tl.constexpr,
    HEADS: tl.constexpr, SPLITS: tl.constexpr, BJ: tl.constexpr, AMONG: tl.constexpr,
    CP: tl.constexpr, LISTED: tl.constexpr, CANDIDATES: tl.constexpr, AT_ONCE: tl.constexpr, FEW: tl.constexpr,
    BLOCKS: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr, BT: tl.constexpr, APPEND: tl.constexpr,
    KEYS: tl.constexpr, BN: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Programs i_c < C score BJ blocks each and choose, the next C_WIN attend to KEYS keys of the window each, the
    others finish heads: the last two for each of the PARTS.

    SPLITS and CP are S and the number of lists rounded up to a power of two. What the window gives are splits N_SEL and
    on of the third kernel's N.
    """
    FREE: tl.constexpr = SLOTS - INIT - LOCAL
    LISTS: tl.constexpr = BJ // AMONG
    i_h = tl.program_id(0)
    i_n = tl.program_id(1)
    i_c = tl.program_id(2)  # those that score begin first: they take longest
    i_bh = i_n * H + i_h
    i_t = query_position(p_length, p_now, i_n, APPEND)
    if i_c >= C + C_WIN * PARTS:
        i_x = i_c - C - C_WIN * PARTS
        i_bp = i_bh * PARTS + i_x % PARTS
        _merge_heads(p_m, p_l, p_a, p_out, i_bp, i_x // PARTS * HEADS, S, G, GP, DV, HEADS, SPLITS)
    elif i_c >= C:  # not with several TOKENS
        i_w, i_part = (i_c - C) // PARTS, (i_c - C) % PARTS
        i_partial = (i_bh * PARTS + i_part) * N + N_SEL
        _window_split(
            p_q, p_wk, p_wv, p_m3, p_l3, p_a3, p_seen3, i_n, i_h * PARTS + i_part, i_h, i_t, i_w, i_partial, H, s_qb,
            s_qh, scale, G, GP, DK, DV, W, KEYS, BN, PREC,
        )  # fmt: skip
    else:
        now = tl.where(i_t >= 0, tl.maximum(i_t, 0) // LS, -1)
        i_end = tl.maximum(now + 1 - LOCAL, INIT)  # blocks [INIT, i_end) are free to be chosen
        p_mine = p_lists + i_bh.to(tl.int64) * (C * LISTS) * LISTED
        if FREE > 0:
            n = tl.maximum(i_t + 1 - L + D, 0) // D
            i_bp = i_bh * PARTS
            p_sums += i_bp.to(tl.int64) * s_sums
            p_zero += i_bp.to(tl.int64) * s_zero
            o_b = i_c * BJ + tl.arange(0, BJ)
            m_b = (o_b >= INIT) & (o_b < i_end)
            p_summed += i_bp.to(tl.int64) * s_summed
            b_score = scores(
                p_sums, p_zero, p_summed, HALF, o_b, m_b, n, p_m, p_l, i_bp, S,
                G, GP, L, D, LS, SPLITS, TILE, WIDTH, STEP, BT, BLOCKS,
            )  # fmt: skip
            for _ in range(1, PARTS):  # always in this order
                i_bp += 1
                p_sums += s_sums
                p_zero += s_zero
                p_summed += s_summed
                b_score += scores(
                    p_sums, p_zero, p_summed, HALF, o_b, m_b, n, p_m, p_l, i_bp, S,
                    G, GP, L, D, LS, SPLITS, TILE, WIDTH, STEP, BT, BLOCKS,
                )  # fmt: skip
            o_list = i_c * LISTS + tl.arange(0, LISTS)[:, None]
            b_key = tl.reshape(_keys(b_score, o_b, m_b), [LISTS, AMONG])
            m_better = tl.trans(b_key)[:, :, None] > b_key[None, :, :]  # in this order no warp needs another's
            b_rank = tl.sum(m_better.to(tl.int32), 0)
            tl.store(p_mine + o_list * LISTED + b_rank, b_key, mask=b_rank < LISTED)
        tl.debug_barrier()  # every thread has stored before one of them says so
        if tl.atomic_add(p_ticket + i_bh, 1, sem="acq_rel") == C - 1:
            b_best = tl.full([SP], -1, tl.int32)
            if FREE > 0:
                b_best = _best(p_mine, C * LISTS, FREE, FP, SP, LISTED, CP, CANDIDATES, AT_ONCE, FEW)
            _store_chosen(p_chosen + i_bh * SLOTS, b_best, now, FREE, INIT, LOCAL, SLOTS, SP)
            tl.store(p_ticket + i_bh, 0)
    if APPEND:  # at the end, because no load may overtake a store
        m_last = (i_h == 0) & (i_c == 0)
        if TOKENS > 1:
            i_next = tl.load(p_now + i_n + 1, mask=i_n % TOKENS < TOKENS - 1, other=-1)
            m_last = m_last & (i_t >= 0) & (i_next < 0)
        tl.store(p_length + i_n // TOKENS, i_t.to(tl.int64) + 1, mask=m_last)
