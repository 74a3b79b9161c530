"""The third decode kernel: attention to the selected blocks, and the gated sum of the branches.

Each program takes `KEYS` keys of one (sequence, part of a KV head's group); the one that finishes last adds everything
up, the splits of the window that the second kernel left included.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.launch import launched
from nsa.kernels.common.softmax import begin
from nsa.kernels.common.tiles import LOADS_CHAIN, LOW
from nsa.kernels.decode.rows import attend, load_queries, over_splits, pages_of, query_position, rows_in, store_partial


@triton.jit
def _places(p_chosen, p_table, i, i_b, i_t, SLOTS, s_table, BN: tl.constexpr, LS: tl.constexpr, PAGE: tl.constexpr):
    """Positions and pages [BN] of the keys from i on of the chosen blocks; position -1: none that the query sees."""
    o_x = i + tl.arange(0, BN)
    o_slot = o_x // LS
    b_block = tl.load(p_chosen + o_slot, mask=o_slot < SLOTS, other=-1).to(tl.int32)
    o_pos = b_block * LS + o_x % LS
    o_pos = tl.where((b_block >= 0) & (o_pos >= 0) & (o_pos <= i_t), o_pos, -1)
    return o_pos, pages_of(p_table, i_b, o_pos, o_pos >= 0, s_table, PAGE)


@triton.jit
def _weights(b_m, b_l, b_gate, m_split):
    """What the splits in m_split [SPLITS] count for: gate * exp(largest logit) over all their sums [GP, SPLITS]."""
    b_w, _, b_sum = over_splits(tl.where(m_split[None, :], b_m, LOW), tl.where(m_split[None, :], b_l, 0.0), 1)
    b_w = tl.where(m_split[None, :], b_w, 0.0)
    return b_w * tl.where(b_sum > 0.0, b_gate / tl.maximum(b_sum, 1e-30), 0.0)[:, None]


@triton.jit
def _columns(p_a, p_cmp, o_row, m_row, o_out, m_g, i, DV: tl.constexpr, COLUMNS: tl.constexpr, CMP: tl.constexpr):
    """Columns [i, i + COLUMNS) of all splits [GP, SPLITS, COLUMNS] and, with CMP, of compressed attention."""
    o_col = i + tl.arange(0, COLUMNS)
    p_split = p_a + o_row[:, :, None] * DV + o_col[None, None, :]
    p_split = tl.max_contiguous(p_split, [2, 1, 4])  # of axes 0 and 1, the first is to be spread over threads
    b_a = tl.load(p_split, mask=m_row[:, :, None] & (o_col < DV)[None, None, :], other=0.0)
    b_cmp = tl.zeros([m_g.shape[0], COLUMNS], tl.float32)
    if CMP:
        m_o = m_g[:, None] & (o_col < DV)[None, :]
        b_cmp = tl.load(p_cmp + o_out[:, None] * DV + o_col[None, :], mask=m_o, other=0.0)
    return b_a, b_cmp


@triton.jit
def _finish(
    p_gates, p_cmp, p_seen_cmp, p_m, p_l, p_a, p_seen, p_o, p_reads, i_n, i_p, i_bp, S, N_SEL, N, s_gb, s_gh, s_gx,
    PARTS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DV: tl.constexpr, SPLITS: tl.constexpr,
    CMP_SPLITS: tl.constexpr, COLUMNS: tl.constexpr, CMP: tl.constexpr, CMP_READ: tl.constexpr,
):  # fmt: skip
    """The gated sum of the branches of one (sequence, part), and the keys that each read.

    Splits are the middle axis, so that each thread holds all splits of its columns and adds them without the others.
    Loads come before what waits for others: the next columns are on their way while some are added up.
    """
    o_s, o_g = tl.arange(0, SPLITS), tl.arange(0, GP)
    m_s, m_g, m_sel = o_s < N, o_g < G, o_s < N_SEL
    o_row = (i_bp * N + o_s).to(tl.int64)[None, :] * GP + o_g[:, None]
    b_m = tl.load(p_m + o_row, mask=m_s[None, :], other=LOW)
    b_l = tl.load(p_l + o_row, mask=m_s[None, :], other=0.0)
    o_gate = i_n.to(tl.int64) * s_gb + (i_p * G + o_g).to(tl.int64) * s_gh
    b_gate = tl.load(p_gates + o_gate, mask=m_g, other=0.0).to(tl.float32)
    b_gate_sel = tl.load(p_gates + o_gate + s_gx, mask=m_g, other=0.0).to(tl.float32)
    b_gate_win = tl.load(p_gates + o_gate + 2 * s_gx, mask=m_g, other=0.0).to(tl.float32)
    b_seen = tl.load(p_seen + i_bp * N + o_s, mask=m_s, other=0)
    b_seen_cmp = tl.zeros([CMP_SPLITS], tl.int32)
    if CMP_READ:
        o_c = tl.arange(0, CMP_SPLITS)
        b_seen_cmp = tl.load(p_seen_cmp + i_bp * S + o_c, mask=o_c < S, other=0)
    m_row = m_s[None, :] & m_g[:, None]
    o_out = (i_bp * G + o_g).to(tl.int64)
    b_a, b_cmp = _columns(p_a, p_cmp, o_row, m_row, o_out, m_g, 0, DV, COLUMNS, CMP)
    b_a_next, b_cmp_next = _columns(p_a, p_cmp, o_row, m_row, o_out, m_g, COLUMNS, DV, COLUMNS, CMP)
    b_w = _weights(b_m, b_l, b_gate_sel, m_sel) + _weights(b_m, b_l, b_gate_win, m_s & (o_s >= N_SEL))
    for i in tl.static_range(0, DV, COLUMNS):
        b_o = tl.sum(b_a * b_w[:, :, None], 1)
        if CMP:
            b_o += b_gate[:, None] * b_cmp
        b_a, b_cmp = b_a_next, b_cmp_next
        if i + 2 * COLUMNS < DV:
            b_a_next, b_cmp_next = _columns(p_a, p_cmp, o_row, m_row, o_out, m_g, i + 2 * COLUMNS, DV, COLUMNS, CMP)
        o_col = i + tl.arange(0, COLUMNS)
        m_o = m_g[:, None] & (o_col < DV)[None, :]
        tl.store(p_o + o_out[:, None] * DV + o_col[None, :], b_o.to(p_o.dtype.element_ty), mask=m_o)
    p_mine = p_reads + i_bp // PARTS * 3  # every part counts the same
    tl.store(p_mine, tl.sum(b_seen_cmp, 0).to(tl.int64))
    tl.store(p_mine + 1, tl.sum(tl.where(m_sel, b_seen, 0), 0).to(tl.int64))
    tl.store(p_mine + 2, tl.sum(tl.where(m_sel, 0, b_seen), 0).to(tl.int64))


@launched
@triton.jit(do_not_specialize=["H", "S", "N_SEL", "N", "ROWS_SEL", "s_table", "SLOTS"])
def combine_kernel(
    p_q, p_length, p_now, p_table, p_sk, p_sv, p_chosen, p_gates, p_cmp, p_seen_cmp,
    p_m, p_l, p_a, p_seen, p_ticket, p_o, p_reads,
    H, S, N_SEL, N, SLOTS, ROWS_SEL, s_table, s_qb, s_qh, s_gb, s_gh, s_gx, scale,
    TOKENS: tl.constexpr, PARTS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    LS: tl.constexpr, PAGE: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr, CMP_SPLITS: tl.constexpr,
    COLUMNS: tl.constexpr, APPEND: tl.constexpr, CMP: tl.constexpr, CMP_READ: tl.constexpr, BN: tl.constexpr,
    PREC: tl.constexpr,
):  # fmt: skip
    """Split i_s of N, of which the first N_SEL are of the selected blocks. The output is the sum of all branches."""
    i_p = tl.program_id(0)
    i_h = i_p // PARTS
    i_s = tl.program_id(1)
    i_n = tl.program_id(2)
    i_b = i_n // TOKENS
    i_bp = i_n * H * PARTS + i_p
    b_q0, b_q1 = load_queries(p_q, i_n, i_p, s_qb, s_qh, G, GP, DK)
    i_t = query_position(p_length, p_now, i_n, APPEND)
    b_m, b_l, b_a0, b_a1 = begin(GP, DV, True, False)
    i_first = i_bp * N
    if i_s < N_SEL:  # without selected blocks, one program adds up the rest
        b_seen = tl.zeros([BN], tl.int32)
        p_mine = p_chosen + (i_n * H + i_h) * SLOTS
        o_pos, b_page = _places(p_mine, p_table, i_s * KEYS, i_b, i_t, SLOTS, s_table, BN, LS, PAGE)
        for i in tl.range(i_s * KEYS, (i_s + 1) * KEYS, BN, num_stages=None if LOADS_CHAIN else 1):
            m_key = o_pos >= 0
            o_row = rows_in(b_page, i_b, tl.maximum(o_pos, 0), ROWS_SEL, PAGE) * H + i_h
            o_pos, b_page = _places(p_mine, p_table, i + BN, i_b, i_t, SLOTS, s_table, BN, LS, PAGE)
            _, b_m, b_l, b_a0, b_a1 = attend(
                b_q0, b_q1, b_m, b_l, b_a0, b_a1, p_sk, p_sv, o_row, m_key, scale, DK, DV, PREC
            )
            b_seen += m_key.to(tl.int32)
        store_partial(p_m, p_l, p_a, p_seen, i_first + i_s, b_m, b_l, b_a0, b_a1, b_seen, G, GP, DV)
    tl.debug_barrier()  # every thread has stored before one of them says so
    if tl.atomic_add(p_ticket + i_bp, 1, sem="acq_rel") == tl.num_programs(1) - 1:
        _finish(
            p_gates, p_cmp, p_seen_cmp, p_m, p_l, p_a, p_seen, p_o, p_reads,
            i_n, i_p, i_bp, S, N_SEL, N, s_gb, s_gh, s_gx,
            PARTS, G, GP, DV, SPLITS, CMP_SPLITS, COLUMNS, CMP, CMP_READ,
        )  # fmt: skip
        tl.store(p_ticket + i_bp, 0)
