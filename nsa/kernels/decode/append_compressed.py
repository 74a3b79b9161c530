"""The first decode kernel: append a token, emit the compressed token that it completes, attend to compressed tokens.

Each program takes one split of a sequence's compressed tokens for one part of a KV head's group (split-K) and leaves
its partial output, and of its probabilities what the second kernel needs for the scores of blocks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.launch import launched
from nsa.kernels.common.softmax import begin
from nsa.kernels.common.tiles import LOADS_CHAIN
from nsa.kernels.decode.rows import attend, load_queries, new_token, pages_of, query_position, rows_in, store_partial
from nsa.kernels.decode.scores import leave_sums

RING_ROWS = tl.constexpr(32)
"""Rows of the ring that are added up at once."""


@triton.jit
def load_new(p_cmp, p_sel, p_win, o_new, m_any, WIDTH: tl.constexpr, D: tl.constexpr):
    """A new token's rows in the three branches [WIDTH], all in flight together."""
    o_col = tl.arange(0, WIDTH)
    m_col = (o_col < D) & m_any
    b_cmp = tl.load(p_cmp + o_new + o_col, mask=m_col)
    b_sel = tl.load(p_sel + o_new + o_col, mask=m_col)
    b_win = tl.load(p_win + o_new + o_col, mask=m_col)
    return b_cmp, b_sel, b_win


@triton.jit
def store_row(p_x, b_x, i_row, i_h, H, WIDTH: tl.constexpr, D: tl.constexpr):
    """Write a key or value to row i_row."""
    o_col = tl.arange(0, WIDTH)
    tl.store(p_x + (i_row * H + i_h) * D + o_col, b_x, mask=o_col < D)


@triton.jit
def store_new(
    p_sk, p_sv, p_wk, p_wv, p_rk, p_rv, p_table, b_nkc, b_nks, b_nkw, b_nvc, b_nvs, b_nvw,
    i_b, i_h, i_t, H, ROWS_SEL, s_table, WK: tl.constexpr, WV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    L: tl.constexpr, W: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """A new token's rows at position i_t: among the selected branch's, and in the rings of window and compression."""
    i_sel = rows_in(pages_of(p_table, i_b, i_t, True, s_table, PAGE), i_b, i_t, ROWS_SEL, PAGE)
    i_win = i_b.to(tl.int64) * W + i_t % W
    i_ring = i_b.to(tl.int64) * L + i_t % L
    store_row(p_sk, b_nks, i_sel, i_h, H, WK, DK)
    store_row(p_sv, b_nvs, i_sel, i_h, H, WV, DV)
    store_row(p_wk, b_nkw, i_win, i_h, H, WK, DK)
    store_row(p_wv, b_nvw, i_win, i_h, H, WV, DV)
    store_row(p_rk, b_nkc, i_ring, i_h, H, WK, DK)
    store_row(p_rv, b_nvc, i_ring, i_h, H, WV, DV)


@triton.jit
def _mean(p_ring, p_new, o_new, i_b, i_h, i_t, o_col, H, L: tl.constexpr, D: tl.constexpr):
    """Mean over L - 1 rows of the ring and the new token at the columns o_col, in the cache's dtype."""
    m_col = o_col < D
    b_sum = tl.load(p_new + o_new + o_col, mask=m_col, other=0.0).to(tl.float32)
    for i in range(0, L, RING_ROWS):
        o_r = i + tl.arange(0, RING_ROWS)
        m_r = (o_r < L) & (o_r != i_t % L)
        o_x = ((i_b.to(tl.int64) * L + o_r) * H + i_h) * D
        b_x = tl.load(p_ring + o_x[:, None] + o_col[None, :], mask=m_r[:, None] & m_col[None, :], other=0.0)
        b_sum += tl.sum(b_x.to(tl.float32), 0)
    return (b_sum / L).to(p_ring.dtype.element_ty)


@triton.jit
def emitted(
    p_ring, p_new, p_frequency, o_new, i_b, i_h, i_t, H,
    L: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """The mean of the last L tokens [WIDTH], ROTATED by the position of the first of them."""
    o_col = tl.arange(0, WIDTH)
    b_x = _mean(p_ring, p_new, o_new, i_b, i_h, i_t, o_col, H, L, D)
    if ROTATED:
        HALF: tl.constexpr = D // 2
        m_first = o_col < HALF
        o_other = tl.where(m_first, o_col + HALF, o_col - HALF)
        b_other = _mean(p_ring, p_new, o_new, i_b, i_h, i_t, o_other, H, L, D).to(tl.float32)
        b_angle = tl.load(p_frequency + tl.where(m_first, o_col, o_other), mask=o_col < D, other=0.0)
        b_angle *= (i_t + 1 - L).to(tl.float32)
        b_turned = tl.where(m_first, -b_other, b_other) * tl.sin(b_angle)
        b_x = (b_x.to(tl.float32) * tl.cos(b_angle) + b_turned).to(b_x.dtype)
    return b_x


@launched
@triton.jit(do_not_specialize=["H", "S", "ROWS_SEL", "ROWS_CMP", "LIMIT", "s_table"])
def append_compressed_kernel(
    p_q, p_length, p_count, p_now, p_table,
    p_nkc, p_nks, p_nkw, p_nvc, p_nvs, p_nvw, p_frequency,
    p_ck, p_cv, p_sk, p_sv, p_wk, p_wv, p_rk, p_rv,
    p_sums, p_zero, p_m, p_l, p_a, p_seen,
    H, S, ROWS_SEL, ROWS_CMP, LIMIT, s_table, s_qb, s_qh, s_kb, s_kh, s_vb, s_vh, s_sums, s_zero, HALF, scale,
    TOKENS: tl.constexpr, PARTS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    WK: tl.constexpr, WV: tl.constexpr, L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, W: tl.constexpr,
    PAGE: tl.constexpr, CMP_PAGE: tl.constexpr, APPEND: tl.constexpr, COUNTED: tl.constexpr, EMIT: tl.constexpr,
    ROTATED: tl.constexpr, BLOCKS: tl.constexpr, BN: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Split i_s of S of the compressed tokens that the heads of (query, part) see. Several TOKENS are
    appended before.

    WK and WV are DK and DV rounded up to a power of two.
    """
    i_p = tl.program_id(0)
    i_h = i_p // PARTS
    i_s = tl.program_id(1)
    i_n = tl.program_id(2)
    i_b = i_n // TOKENS
    b_q0, b_q1 = load_queries(p_q, i_n, i_p, s_qb, s_qh, G, GP, DK)
    if APPEND:
        o_nk = i_b.to(tl.int64) * s_kb + i_h.to(tl.int64) * s_kh
        o_nv = i_b.to(tl.int64) * s_vb + i_h.to(tl.int64) * s_vh
        b_nkc, b_nks, b_nkw = load_new(p_nkc, p_nks, p_nkw, o_nk, i_s == S - 1, WK, DK)
        b_nvc, b_nvs, b_nvw = load_new(p_nvc, p_nvs, p_nvw, o_nv, i_s == S - 1, WV, DV)
    if TOKENS > 1:
        i_t = query_position(p_length, p_now, i_n, True)
    else:
        i_t, m_new = new_token(p_length, p_count, p_table, i_b, LIMIT, s_table, PAGE, APPEND, COUNTED)
    n = tl.maximum(i_t + 1 - L + D, 0) // D  # visible compressed tokens
    i_split = tl.cdiv(tl.cdiv(n, BN), S) * BN
    i_lo = i_s * i_split
    i_hi = tl.minimum(i_lo + i_split, n)

    if APPEND:
        if (i_s == S - 1) & (i_p % PARTS == 0) & m_new:
            store_new(
                p_sk, p_sv, p_wk, p_wv, p_rk, p_rv, p_table, b_nkc, b_nks, b_nkw, b_nvc, b_nvs, b_nvw,
                i_b, i_h, i_t, H, ROWS_SEL, s_table, WK, WV, DK, DV, L, W, PAGE,
            )  # fmt: skip
        if EMIT:
            m_last = (i_lo < n) & (i_hi == n)  # this split ends with the token that is new
            if m_new & m_last & ((i_t + 1) % D == 0):  # D divides L
                i_row = rows_in(pages_of(p_table, i_b, n - 1, True, s_table, CMP_PAGE), i_b, n - 1, ROWS_CMP, CMP_PAGE)
                b_k = emitted(p_rk, p_nkc, p_frequency, o_nk, i_b, i_h, i_t, H, L, WK, DK, ROTATED)
                b_v = emitted(p_rv, p_nvc, p_frequency, o_nv, i_b, i_h, i_t, H, L, WV, DV, False)
                store_row(p_ck, b_k, i_row, i_h, H, WK, DK)
                store_row(p_cv, b_v, i_row, i_h, H, WV, DV)
                tl.debug_barrier()  # other threads read it below; other parts write the same
        if (i_s == S - 1) & (i_p == 0):
            tl.store(p_now + i_b, i_t)

    i_bp = i_n * H * PARTS + i_p
    b_m, b_l, b_a0, b_a1 = begin(GP, DV, True, False)
    p_sums += i_bp.to(tl.int64) * s_sums
    p_zero += i_bp.to(tl.int64) * s_zero
    b_seen = tl.zeros([BN], tl.int32)
    o_i = i_lo + tl.arange(0, BN)
    b_page = pages_of(p_table, i_b, o_i, o_i < i_hi, s_table, CMP_PAGE)
    for i in tl.range(i_lo, i_hi, BN, num_stages=None if LOADS_CHAIN else 1):
        o_i = i + tl.arange(0, BN)
        m_i = o_i < i_hi
        o_row = rows_in(b_page, i_b, o_i, ROWS_CMP, CMP_PAGE) * H + i_h
        b_page = pages_of(p_table, i_b, o_i + BN, o_i + BN < i_hi, s_table, CMP_PAGE)
        b_s, b_m, b_l, b_a0, b_a1 = attend(
            b_q0, b_q1, b_m, b_l, b_a0, b_a1, p_ck, p_cv, o_row, m_i, scale, DK, DV, PREC
        )
        leave_sums(b_s, b_m, p_sums, p_zero, HALF, i, i_hi, G, GP, L, D, LS, BN, BLOCKS)
        b_seen += m_i.to(tl.int32)
    store_partial(p_m, p_l, p_a, p_seen, i_bp * S + i_s, b_m, b_l, b_a0, b_a1, b_seen, G, GP, DV)
