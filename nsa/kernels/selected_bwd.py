"""Backward kernels of selected attention; the vocabulary and the schedules are those of `selected_fwd`.

dq goes query by query, token by token or tile by tile, as the forward does. dk and dv go block by block over the
runs of `index.Runs`: each run gathers its queries and writes fp32 partial sums, which a second kernel adds in the
order of the runs. Nothing is added atomically, so every run of the program gives the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common import LOG2E, store_tile
from nsa.kernels.index import FAR
from nsa.kernels.selected_fwd import key_rows, run_of
from nsa.kernels.spans import _load_pair as load_pair
from nsa.kernels.spans import _scores as dot_rows


@triton.jit
def load_lse(p_lse, o_row, m_row):
    """The log-sum-exp in log2 units; +inf for rows that saw no key (or do not exist), so that p = 0."""
    b_lse = tl.load(p_lse + o_row, mask=m_row, other=float("-inf"))
    return tl.where(b_lse == float("-inf"), float("inf"), b_lse * LOG2E)


@triton.jit(do_not_specialize=["N", "M", "n_tiles", "most"])
def dq_kernel(
    p_q, p_k, p_v, p_do, p_lse, p_delta, p_gate, p_dq, p_blocks, p_members, p_count, p_queries,
    N, M, n_tiles, most, s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_it, s_ih, s_gate, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    LB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TB: tl.constexpr, UT: tl.constexpr, SLOTS: tl.constexpr,
    U: tl.constexpr, TILE: tl.constexpr, PREC: tl.constexpr, GATED: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """dq of TB queries of one KV head; who computes what is decided as in `selected_fwd.forward_kernel`."""
    i_tile, i_h = tl.program_id(0), tl.program_id(1)
    o_union = i_h * n_tiles + i_tile * TB // UT
    n_blocks = SLOTS
    if TILE:
        n_blocks = tl.load(p_count + o_union)
        if n_blocks > most:
            return
    elif most >= 0:
        if tl.load(p_count + o_union) <= most:
            return
    o_r = tl.arange(0, BM)
    o_tok, o_g = o_r // GP, o_r % GP
    o_n = i_tile * TB + o_tok
    m_row = (o_tok < TB) & (o_n < N) & (o_g < G)
    o_n = tl.minimum(o_n, N - 1).to(tl.int64)
    o_row = o_n * (H * G) + i_h * G + o_g
    b_q0, b_q1 = load_pair(p_q, o_n * s_qt + (i_h * G + o_g) * s_qh, m_row, DK, DK0, DK1, True)  # [BM, DK]
    b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, DV0, DV1, True)  # [BM, DV]
    b_lse = load_lse(p_lse, o_row, m_row)
    b_delta = tl.load(p_delta + o_row, mask=m_row, other=0.0)
    b_limit = tl.load(p_queries + 2 * N + o_n)
    if TILE:
        p_blocks += o_union.to(tl.int64) * U
        p_members += o_union.to(tl.int64) * U
    else:
        p_blocks += i_tile.to(tl.int64) * s_it + i_h * s_ih
        first = tl.load(p_queries + N + i_tile)
    SUB: tl.constexpr = (LB + BN - 1) // BN
    b_dq0 = tl.zeros([BM, DK0], tl.float32)
    b_dq1 = tl.zeros([BM, DK1 if DK1 > 0 else 16], tl.float32)
    for i in range(n_blocks * SUB):
        if TILE:
            start = tl.load(p_blocks + i // SUB)
            b_last = tl.where(((tl.load(p_members + i // SUB) >> o_tok) & 1) != 0, b_limit, -1)
        else:
            block = tl.load(p_blocks + i // SUB)
            start = tl.where(block < 0, FAR, first + block * LB)
            b_last = b_limit
        o_key, o_at = key_rows(start, M - 1, i % SUB, BN, LB)
        b_k0, b_k1 = load_pair(p_k + i_h * s_kh, o_at * s_kt, o_at >= 0, DK, DK0, DK1, False)
        b_v0, b_v1 = load_pair(p_v + i_h * s_vh, o_at * s_vt, o_at >= 0, DV, DV0, DV1, False)
        b_p = tl.exp2(dot_rows(b_q0, b_q1, b_k0, b_k1, DK1, PREC) * (scale * LOG2E) - b_lse[:, None])  # [BM, BN]
        b_p = tl.where(o_key[None, :] <= b_last[:, None], b_p, 0.0)
        b_ds = b_p * (dot_rows(b_do0, b_do1, b_v0, b_v1, DV1, PREC) - b_delta[:, None])
        b_ds = b_ds.to(b_k0.dtype)
        b_dq0 = tl.dot(b_ds, b_k0, b_dq0, input_precision=PREC)
        if DK1 > 0:
            b_dq1 = tl.dot(b_ds, b_k1, b_dq1, input_precision=PREC)
    b_f = tl.full([BM], 1.0, tl.float32) * scale
    if GATED:
        b_f *= tl.load(p_gate + o_row * s_gate, mask=m_row, other=0.0).to(tl.float32)
    store_tile(p_dq, o_row * DK, m_row, b_dq0 * b_f[:, None], 0, DK0, DK, ADD)
    if DK1 > 0:
        store_tile(p_dq, o_row * DK, m_row, b_dq1 * b_f[:, None], DK0, DK1, DK, ADD)


@triton.jit(do_not_specialize=["N", "M", "BINS", "n_keys"])
def dkv_kernel(
    p_q, p_k, p_v, p_do, p_lse, p_delta, p_gate, p_dk, p_dv, p_order, p_edges, p_run_edges, p_run_key, p_blocks,
    p_queries, N, M, BINS, n_keys, s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_gate, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    LB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SLOTS: tl.constexpr, PAIRS: tl.constexpr, PREC: tl.constexpr,
    GATED: tl.constexpr,
):  # fmt: skip
    """One run and BN keys of its block: fp32 partial sums p_dk [R,SUB*BN,DK], p_dv [R,SUB*BN,DV].

    Keys are the rows of the tiles, so that p and ds stay in registers as left operands.
    """
    TB: tl.constexpr = BM // GP
    SUB: tl.constexpr = (LB + BN - 1) // BN
    i_run, i_sub = tl.program_id(0), tl.program_id(1)
    i_key = tl.load(p_run_key + i_run)
    if i_key >= n_keys:
        return
    i_h = i_key // BINS % H
    p_list, n_pairs = run_of(p_order, p_edges, p_run_edges, i_run, i_key, PAIRS)
    o_key, o_at = key_rows(tl.load(p_blocks + i_key % BINS), M - 1, i_sub, BN, LB)
    b_k0, b_k1 = load_pair(p_k + i_h * s_kh, o_at * s_kt, o_at >= 0, DK, DK0, DK1, False)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_v + i_h * s_vh, o_at * s_vt, o_at >= 0, DV, DV0, DV1, False)  # [BN, DV]
    b_dk0 = tl.zeros([BN, DK0], tl.float32)
    b_dk1 = tl.zeros([BN, DK1 if DK1 > 0 else 16], tl.float32)
    b_dv0 = tl.zeros([BN, DV0], tl.float32)
    b_dv1 = tl.zeros([BN, DV1 if DV1 > 0 else 16], tl.float32)
    o_r = tl.arange(0, BM)
    o_g = o_r % GP
    for i in range(tl.cdiv(n_pairs, TB)):
        o_pos = i * TB + o_r // GP
        o_n = tl.load(p_list + tl.minimum(o_pos, n_pairs - 1)) // (H * SLOTS)  # [BM]
        m_row = (o_pos < n_pairs) & (o_g < G)
        o_head = i_h * G + tl.minimum(o_g, G - 1)
        o_row = o_n * (H * G) + o_head
        b_q0, b_q1 = load_pair(p_q, o_n * s_qt + o_head * s_qh, m_row, DK, DK0, DK1, False)  # [BM, DK]
        b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, DV0, DV1, False)  # [BM, DV]
        b_lse = load_lse(p_lse, o_row, m_row)
        b_delta = tl.load(p_delta + o_row)
        b_limit = tl.load(p_queries + 2 * N + o_n)
        b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK1, PREC) * (scale * LOG2E) - b_lse[None, :])  # [BN, BM]
        b_p = tl.where(o_key[:, None] <= b_limit[None, :], b_p, 0.0)
        if GATED:
            b_p *= tl.load(p_gate + o_row * s_gate).to(tl.float32)[None, :]
        b_pt = b_p.to(b_do0.dtype)
        b_dv0 = tl.dot(b_pt, b_do0, b_dv0, input_precision=PREC)
        if DV1 > 0:
            b_dv1 = tl.dot(b_pt, b_do1, b_dv1, input_precision=PREC)
        b_ds = b_p * (dot_rows(b_v0, b_v1, b_do0, b_do1, DV1, PREC) - b_delta[None, :])
        b_ds = b_ds.to(b_q0.dtype)
        b_dk0 = tl.dot(b_ds, b_q0, b_dk0, input_precision=PREC)
        if DK1 > 0:
            b_dk1 = tl.dot(b_ds, b_q1, b_dk1, input_precision=PREC)
    o_out = i_run.to(tl.int64) * (SUB * BN) + i_sub * BN + tl.arange(0, BN)
    store_tile(p_dk, o_out * DK, o_key >= 0, b_dk0 * scale, 0, DK0, DK, False)
    store_tile(p_dv, o_out * DV, o_key >= 0, b_dv0, 0, DV0, DV, False)
    if DK1 > 0:
        store_tile(p_dk, o_out * DK, o_key >= 0, b_dk1 * scale, DK0, DK1, DK, False)
    if DV1 > 0:
        store_tile(p_dv, o_out * DV, o_key >= 0, b_dv1, DV0, DV1, DV, False)


@triton.jit(do_not_specialize=["BINS", "n_chunks"])
def reduce_kernel(
    p_part, p_x, p_run_edges, p_blocks, BINS, n_chunks,
    H: tl.constexpr, D: tl.constexpr, LB: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Sum the partials p_part [R,ROWS,D] of one block and KV head into p_x [M,H,D], BN keys by BD columns a program.

    A block that no query selected gets zeros. Keys of no block do not exist: every key belongs to one.
    """
    i_bin, i_h = tl.program_id(0), tl.program_id(1)
    first, end = tl.load(p_blocks + i_bin), tl.load(p_blocks + BINS + i_bin)
    o_key = tl.program_id(2) // tl.cdiv(D, BD) * BN + tl.arange(0, BN)  # [BN]
    o_col = tl.program_id(2) % tl.cdiv(D, BD) * BD + tl.arange(0, BD)
    m_key = (o_key < LB) & (first + o_key < end)
    m_tile = m_key[:, None] & (o_col < D)[None, :]
    o_tile = o_key[:, None] * D + o_col[None, :]
    b_sum = tl.zeros([BN, BD], tl.float32)
    for i_chunk in range(n_chunks):
        i_key = (i_chunk * H + i_h) * BINS + i_bin
        i_run = tl.load(p_run_edges + i_key)
        p_run = p_part + i_run.to(tl.int64) * (ROWS * D)
        for _ in range(tl.load(p_run_edges + i_key + 1) - i_run):
            b_sum += tl.load(p_run + o_tile, mask=m_tile, other=0.0)
            p_run += ROWS * D
    o_x = ((first + o_key).to(tl.int64) * H + i_h) * D
    tl.store(p_x + o_x[:, None] + o_col[None, :], b_sum.to(p_x.dtype.element_ty), mask=m_tile)
