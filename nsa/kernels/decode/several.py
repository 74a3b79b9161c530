"""Several new tokens of each sequence: their window, and then all that is appended. The three kernels of a step follow.

The ring of the window holds w rows, and each new token overwrites one that the tokens before it still see. So the
window is attended to first: of the ring what is within reach, and new rows where the call has them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.launch import launched
from nsa.kernels.common.softmax import begin
from nsa.kernels.decode.append_compressed import emitted, load_new, store_new, store_row
from nsa.kernels.decode.rows import attend, load_queries, new_position, pages_of, rows_in, store_partial


@launched
@triton.jit(do_not_specialize=["H", "N_SEL", "N", "LIMIT", "s_table"])
def window_kernel(
    p_q, p_length, p_count, p_table, p_wk, p_wv, p_nk, p_nv, p_m, p_l, p_a, p_seen,
    H, N_SEL, N, LIMIT, s_table, s_qb, s_qh, scale,
    TOKENS: tl.constexpr, PARTS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    W: tl.constexpr, PAGE: tl.constexpr, COUNTED: tl.constexpr, KEYS: tl.constexpr, BN: tl.constexpr,
    PREC: tl.constexpr,
):  # fmt: skip
    """KEYS rows of the ring, of those that query i_n sees; the first program takes the new rows p_nk, p_nv too,
    [B,TOKENS,H,D*]. What this gives are splits N_SEL and on of the third kernel's N.
    """
    i_p = tl.program_id(0)
    i_w = tl.program_id(1)
    i_n = tl.program_id(2)
    i_h = i_p // PARTS
    i_b = i_n // TOKENS
    i = i_n % TOKENS
    b_q0, b_q1 = load_queries(p_q, i_n, i_p, s_qb, s_qh, G, GP, DK)
    i_t = new_position(p_length, p_count, p_table, i_b, i, LIMIT, s_table, PAGE, COUNTED)
    i_new = i_t - i  # the position of the first new row
    b_m, b_l, b_a0, b_a1 = begin(GP, DV, True, False)
    b_seen = tl.zeros([BN], tl.int32)
    i_lo = i_w * KEYS
    i_hi = tl.minimum(tl.minimum(i_lo + KEYS, W), i_new)
    n_ring = tl.cdiv(tl.maximum(i_hi - i_lo, 0), BN)
    n = n_ring + ((i_w == 0) & (i_t >= 0)).to(tl.int32)
    for i_x in range(0, n):
        m_new = i_x == n_ring  # the last tile of the first program
        o_x = tl.where(m_new, 0, i_lo + i_x * BN) + tl.arange(0, BN)
        o_pos = i_new - 1 - (i_new - 1 + W - o_x) % W  # the last before the new ones in this row of the ring
        m_key = tl.where(m_new, o_x <= i, (o_x < i_hi) & (o_pos > i_t - W))
        o_row = (i_b.to(tl.int64) * tl.where(m_new, TOKENS, W) + o_x) * H + i_h
        p_k, p_v = tl.where(m_new, p_nk, p_wk), tl.where(m_new, p_nv, p_wv)
        _, b_m, b_l, b_a0, b_a1 = attend(b_q0, b_q1, b_m, b_l, b_a0, b_a1, p_k, p_v, o_row, m_key, scale, DK, DV, PREC)
        b_seen += m_key.to(tl.int32)
    i_split = (i_n * H * PARTS + i_p) * N + N_SEL + i_w
    store_partial(p_m, p_l, p_a, p_seen, i_split, b_m, b_l, b_a0, b_a1, b_seen, G, GP, DV)


@launched
@triton.jit(do_not_specialize=["H", "ROWS_SEL", "ROWS_CMP", "LIMIT", "s_table"])
def append_kernel(
    p_length, p_count, p_now, p_table, p_nkc, p_nks, p_nkw, p_nvc, p_nvs, p_nvw, p_frequency,
    p_ck, p_cv, p_sk, p_sv, p_wk, p_wv, p_rk, p_rv,
    H, ROWS_SEL, ROWS_CMP, LIMIT, s_table, s_kb, s_kt, s_kh, s_vb, s_vt, s_vh,
    TOKENS: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, WK: tl.constexpr, WV: tl.constexpr, L: tl.constexpr,
    D: tl.constexpr, W: tl.constexpr, PAGE: tl.constexpr, CMP_PAGE: tl.constexpr, COUNTED: tl.constexpr,
    ROTATED: tl.constexpr,
):  # fmt: skip
    """The new tokens of (sequence, KV head) one after the other, and the compressed tokens that they complete; their
    positions, -1 for padding. The lengths stay: other programs read them.
    """
    i_h = tl.program_id(0)
    i_b = tl.program_id(1)
    for i in range(0, TOKENS):
        o_nk = i_b.to(tl.int64) * s_kb + i * s_kt + i_h.to(tl.int64) * s_kh
        o_nv = i_b.to(tl.int64) * s_vb + i * s_vt + i_h.to(tl.int64) * s_vh
        i_t = new_position(p_length, p_count, p_table, i_b, i, LIMIT, s_table, PAGE, COUNTED)
        b_nkc, b_nks, b_nkw = load_new(p_nkc, p_nks, p_nkw, o_nk, i_t >= 0, WK, DK)
        b_nvc, b_nvs, b_nvw = load_new(p_nvc, p_nvs, p_nvw, o_nv, i_t >= 0, WV, DV)
        if (i_t + 1 >= L) & ((i_t + 1) % D == 0):  # D divides L
            i_c = (i_t + 1 - L) // D
            i_row = rows_in(pages_of(p_table, i_b, i_c, True, s_table, CMP_PAGE), i_b, i_c, ROWS_CMP, CMP_PAGE)
            b_k = emitted(p_rk, p_nkc, p_frequency, o_nk, i_b, i_h, i_t, H, L, WK, DK, ROTATED)
            b_v = emitted(p_rv, p_nvc, p_frequency, o_nv, i_b, i_h, i_t, H, L, WV, DV, False)
            store_row(p_ck, b_k, i_row, i_h, H, WK, DK)
            store_row(p_cv, b_v, i_row, i_h, H, WV, DV)
        tl.debug_barrier()  # the ring has been read
        if i_t >= 0:
            store_new(
                p_sk, p_sv, p_wk, p_wv, p_rk, p_rv, p_table, b_nkc, b_nks, b_nkw, b_nvc, b_nvs, b_nvw,
                i_b, i_h, i_t, H, ROWS_SEL, s_table, WK, WV, DK, DV, L, W, PAGE,
            )  # fmt: skip
        tl.debug_barrier()  # and written
        if i_h == 0:
            tl.store(p_now + i_b * TOKENS + i, i_t)
