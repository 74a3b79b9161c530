"""Backward kernels of selected attention; the vocabulary and the schedules are those of `selected_fwd`.

dk and dv go block by block over the runs of `index.Runs`: each run gathers its queries and writes fp32 partial sums,
which a second kernel adds in the order of the runs, window by window, so that only one window's are held. dq goes query
by query or tile by tile, as the forward does; in the schedule `gather` the pairs that are not in the tile's union get
their part of dq from the run that computes their dk and dv, which saves a third of the products. Nothing is added
atomically, so every call gives the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.backward_preprocess import load_stats
from nsa.kernels.common.launch import launched
from nsa.kernels.common.tiles import LOADS_CHAIN, LOG2E, dot_rows, load_pair, load_tile, store_tile
from nsa.kernels.selected.forward import (
    MERGE_STAGES,
    block_of,
    key_rows,
    load_block,
    load_pairs,
    query_of,
    rest_of,
    run_of,
)
from nsa.kernels.selected.inverted_index import FAR, LEFT_OUT

RUNS_AHEAD = tl.constexpr(4)
"""Partial sums of so many runs are on their way at once."""


@triton.jit
def add_dq(
    b_dq0, b_dq1, p_keys, p_part, rest_keys, o_pair, o_part, o_g, m_row,
    G: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr, DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr,
):  # fmt: skip
    """Add the gathered parts of dq: pairs o_pair [BM] + slot, scratch rows (o_part + slot) * G + g."""
    _, n_slots = rest_of(p_keys, o_pair, m_row, rest_keys, SLOTS, SP)
    for i in tl.range(0, n_slots, num_stages=MERGE_STAGES):
        m_i = tl.load(p_keys + o_pair + i, mask=m_row, other=rest_keys) < rest_keys  # [BM]
        o_i = ((o_part + i) * G + o_g) * DK
        b_dq0 += load_tile(p_part, o_i, m_i, 0, DK0, DK, True).to(tl.float32)
        if DK1 > 0:
            b_dq1 += load_tile(p_part, o_i, m_i, DK0, DK1, DK, True).to(tl.float32)
    return b_dq0, b_dq1


@triton.jit
def _free_blocks(p_blocks, n_blocks, b_limit, LB: tl.constexpr, U: tl.constexpr):
    """How many of the union's blocks, which ascend, end at or before every row's own key: nothing to mask there."""
    o_u = tl.arange(0, U)
    b_start = tl.load(p_blocks + o_u, mask=o_u < n_blocks, other=FAR)
    return tl.sum((b_start + LB <= tl.min(b_limit, 0) + 1).to(tl.int32), 0)


@triton.jit
def _dq_block(
    b_q0, b_q1, b_do0, b_do1, b_dq0, b_dq1, b_lse, b_delta, p_k, p_v, d_k0, d_k1, d_v0, d_v1,
    p_blocks, p_members, i, first, b_limit, last_key, o_tok, i_h, s_kt, s_kh, s_vt, s_vh, scale,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    LB: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, CAUSAL: tl.constexpr, PREC: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """BN keys of a block, as in `selected_fwd`; scale is for units of log2."""
    SUB: tl.constexpr = (LB + BN - 1) // BN
    start, b_last = block_of(p_blocks, p_members, i // SUB, first, b_limit, o_tok, LB, TILE)
    o_key, o_at = key_rows(start, last_key, i % SUB, BN, LB)
    first_row = start + i % SUB * BN
    b_k0, b_k1 = load_block(p_k, d_k0, d_k1, first_row, o_at, i_h, s_kt, s_kh, DK, DK0, DK1, TMA)
    b_v0, b_v1 = load_block(p_v, d_v0, d_v1, first_row, o_at, i_h, s_vt, s_vh, DV, DV0, DV1, TMA)
    b_s = dot_rows(b_q0, b_q1, b_k0, b_k1, DK1, PREC)  # [BM, BN]
    if CAUSAL:
        b_p = tl.exp2(b_s * scale - b_lse[:, None])
    else:
        b_p = tl.exp2(b_s * scale - tl.where(b_last < 0, float("inf"), b_lse)[:, None])
    b_ds = b_p * (dot_rows(b_do0, b_do1, b_v0, b_v1, DV1, PREC) - b_delta[:, None])
    if CAUSAL:
        b_ds = tl.where(o_key[None, :] <= b_last[:, None], b_ds, 0.0)  # as in `spans._dq_step`
    b_ds = b_ds.to(b_k0.dtype)
    b_dq0 = tl.dot(b_ds, b_k0, b_dq0, input_precision=PREC)
    if DK1 > 0:
        b_dq1 = tl.dot(b_ds, b_k1, b_dq1, input_precision=PREC)
    return b_dq0, b_dq1


@triton.jit
def dq_rows(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_do, p_stats, p_dq, p_blocks, p_members,
    p_queries, p_keys, p_part, N, i_first, first_head, part_heads, rest_keys,
    s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_it, s_ih, scale, i_tile, i_h, o_union, n_blocks,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    LB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TB: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr,
    U: tl.constexpr, TILE: tl.constexpr, MERGE: tl.constexpr, PREC: tl.constexpr, ADD: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """dq of TB neighbouring queries from i_tile * TB on, one KV head, over n_blocks blocks."""
    o_r = tl.arange(0, BM)
    o_tok, o_g = o_r // GP, o_r % GP
    o_n = i_tile * TB + o_tok
    m_row = (o_tok < TB) & (o_n < N) & (o_g < G)
    o_n = tl.minimum(o_n, N - 1).to(tl.int64)
    o_row = o_n * (H * G) + i_h * G + o_g
    b_q0, b_q1 = load_pair(p_q, o_n * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh, m_row, DK, DK0, DK1, True)  # [BM, DK]
    b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, DV0, DV1, True)  # [BM, DV]
    b_lse, b_delta, b_sign = load_stats(p_stats, o_row, m_row)
    b_limit = tl.load(p_queries + 2 * N + o_n)
    last_key = tl.max(b_limit, 0)
    if TILE:
        p_blocks += o_union.to(tl.int64) * U
        p_members += o_union.to(tl.int64) * U
        first = 0
    else:
        p_blocks += i_tile.to(tl.int64) * s_it + i_h.to(tl.int64) * s_ih
        first = tl.load(p_queries + N + i_tile)
    SUB: tl.constexpr = (LB + BN - 1) // BN
    b_dq0 = tl.zeros([BM, DK0], tl.float32)
    b_dq1 = tl.zeros([BM, DK1 if DK1 > 0 else 16], tl.float32)
    n_free = 0
    if TILE and LB % BN == 0:
        n_free = _free_blocks(p_blocks, n_blocks, b_limit, LB, U)
        for i in range(n_free * SUB):
            b_dq0, b_dq1 = _dq_block(
                b_q0, b_q1, b_do0, b_do1, b_dq0, b_dq1, b_lse, b_delta, p_k, p_v, d_k0, d_k1, d_v0, d_v1,
                p_blocks, p_members, i, first, b_limit, last_key, o_tok, i_h, s_kt, s_kh, s_vt, s_vh, scale * LOG2E,
                DK, DK0, DK1, DV, DV0, DV1, LB, BN, TILE, False, PREC, TMA,
            )  # fmt: skip
    for i in range(n_free * SUB, n_blocks * SUB):
        b_dq0, b_dq1 = _dq_block(
            b_q0, b_q1, b_do0, b_do1, b_dq0, b_dq1, b_lse, b_delta, p_k, p_v, d_k0, d_k1, d_v0, d_v1,
            p_blocks, p_members, i, first, b_limit, last_key, o_tok, i_h, s_kt, s_kh, s_vt, s_vh, scale * LOG2E,
            DK, DK0, DK1, DV, DV0, DV1, LB, BN, TILE, True, PREC, TMA,
        )  # fmt: skip
    b_f = b_sign * scale
    b_dq0 = b_dq0 * b_f[:, None]
    if DK1 > 0:
        b_dq1 = b_dq1 * b_f[:, None]
    if MERGE:
        o_pair = (o_n * H + i_h) * SLOTS
        o_part = ((o_n - i_first) * part_heads + i_h - first_head) * SLOTS
        b_dq0, b_dq1 = add_dq(
            b_dq0, b_dq1, p_keys, p_part, rest_keys, o_pair, o_part, o_g, m_row, G, SLOTS, SP, DK, DK0, DK1
        )
    store_tile(p_dq, o_row * DK, m_row, b_dq0, 0, DK0, DK, ADD)
    if DK1 > 0:
        store_tile(p_dq, o_row * DK, m_row, b_dq1, DK0, DK1, DK, ADD)


@launched
@triton.jit(do_not_specialize=["N", "i_first", "first_head", "part_heads", "n_tiles", "most", "rest_keys"])
def dq_kernel(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_do, p_stats, p_dq, p_blocks, p_members, p_count,
    p_queries, p_keys, p_part, N, i_first, first_head, part_heads, n_tiles, most, rest_keys,
    s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_it, s_ih, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    LB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TB: tl.constexpr, UT: tl.constexpr, SLOTS: tl.constexpr,
    SP: tl.constexpr, U: tl.constexpr, TILE: tl.constexpr, MERGE: tl.constexpr, PREC: tl.constexpr, ADD: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """dq of UT queries of one KV head, from query i_first and `first_head` on; who computes what is decided as in
    `selected_fwd.forward_kernel`. With MERGE p_part holds the parts of these queries and of `part_heads` heads.
    """
    i_union, i_h = tl.program_id(0) + i_first // UT, tl.program_id(1) + first_head
    o_union = i_h * n_tiles + i_union
    if TILE:
        n_blocks = tl.load(p_count + o_union)
        if MERGE:
            n_blocks -= LEFT_OUT  # below 0 where nothing was left out: the kernel without MERGE computes that tile
        if n_blocks > most or n_blocks < 0:
            return
        i_tile = i_union
        dq_rows(
            p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_do, p_stats, p_dq, p_blocks, p_members,
            p_queries, p_keys, p_part, N, i_first, first_head, part_heads, rest_keys,
            s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_it, s_ih, scale, i_tile, i_h, o_union, n_blocks,
            H, G, GP, DK, DK0, DK1, DV, DV0, DV1, LB, BM, BN, TB, SLOTS, SP, U, TILE, MERGE, PREC, ADD, TMA,
        )  # fmt: skip
    else:
        n_blocks = SLOTS
        if most >= 0:  # noqa: SIM102  without a union there is no count to load
            if tl.load(p_count + o_union) <= most:
                return
        for i in range(tl.minimum(UT, N - i_union * UT)):
            i_tile = i_union * UT + i
            dq_rows(
                p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_do, p_stats, p_dq, p_blocks, p_members,
                p_queries, p_keys, p_part, N, i_first, first_head, part_heads, rest_keys,
                s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_it, s_ih, scale, i_tile, i_h, o_union, n_blocks,
                H, G, GP, DK, DK0, DK1, DV, DV0, DV1, LB, BM, BN, TB, SLOTS, SP, U, TILE, MERGE, PREC, ADD, TMA,
            )  # fmt: skip


@launched
@triton.jit(
    do_not_specialize=["N", "M", "i_first", "first_head", "part_heads", "first_key", "last_key", "begin", "BINS"]
)
def dkv_kernel(
    p_q, p_k, p_v, p_do, p_stats, p_dk, p_dv, p_order, p_edges, p_run_edges, p_run_key, p_blocks,
    p_queries, p_part, N, M, i_first, first_head, part_heads, first_key, last_key, begin, BINS,
    s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    LB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SLOTS: tl.constexpr, PAIRS: tl.constexpr, PREC: tl.constexpr,
    ROWS: tl.constexpr, DQ: tl.constexpr,
):  # fmt: skip
    """A run of the keys [first_key, last_key) from their run `begin` on, BN keys of its block: fp32 sums p_dk, p_dv
    [R,ROWS,D*] of the R runs of the launch.

    Keys are the rows of the tiles, so that p and ds stay in registers as left operands. With DQ the queries belong to
    the chunk that begins at i_first, of `part_heads` KV heads from `first_head` on, and see the whole block, BN covers
    it, and each pair's dq goes to p_part.
    """
    TB: tl.constexpr = BM // GP
    i_run, i_sub = tl.load(p_run_edges + first_key) + begin + tl.program_id(0), tl.program_id(1)
    if i_run >= tl.load(p_run_edges + last_key):
        return
    i_key = tl.load(p_run_key + i_run)
    i_h = i_key // BINS % H
    p_list, n_pairs = run_of(p_order, p_edges, p_run_edges, i_run, i_key, PAIRS)
    o_key, o_at = key_rows(tl.load(p_blocks + i_key % BINS), M - 1, i_sub, BN, LB)
    b_k0, b_k1 = load_pair(p_k + i_h.to(tl.int64) * s_kh, o_at * s_kt, o_at >= 0, DK, DK0, DK1, False)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_v + i_h.to(tl.int64) * s_vh, o_at * s_vt, o_at >= 0, DV, DV0, DV1, False)  # [BN, DV]
    b_dk0 = tl.zeros([BN, DK0], tl.float32)
    b_dk1 = tl.zeros([BN, DK1 if DK1 > 0 else 16], tl.float32)
    b_dv0 = tl.zeros([BN, DV0], tl.float32)
    b_dv1 = tl.zeros([BN, DV1 if DV1 > 0 else 16], tl.float32)
    o_r = tl.arange(0, BM)
    o_g = o_r % GP
    o_next = load_pairs(p_list, o_r // GP, n_pairs)  # [BM], read one step ahead of its use
    for i in tl.range(0, tl.cdiv(n_pairs, TB), num_stages=None if LOADS_CHAIN else 1):
        o_pos = i * TB + o_r // GP
        o_pair = o_next
        o_next = load_pairs(p_list, o_pos + TB, n_pairs)
        o_n = query_of(o_pair, H, SLOTS)
        m_row = (o_pos < n_pairs) & (o_g < G)
        o_head = i_h * G + tl.minimum(o_g, G - 1)
        o_row = o_n * (H * G) + o_head
        b_q0, b_q1 = load_pair(p_q, o_n * s_qt + o_head.to(tl.int64) * s_qh, m_row, DK, DK0, DK1, False)  # [BM, DK]
        b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, DV0, DV1, False)  # [BM, DV]
        b_lse, b_delta, b_sign = load_stats(p_stats, o_row, m_row)
        b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK1, PREC) * (scale * LOG2E) - b_lse[None, :])  # [BN, BM]
        if not DQ:
            b_limit = tl.load(p_queries + 2 * N + o_n)
            b_p = tl.where(o_key[:, None] <= b_limit[None, :], b_p, 0.0)
        elif LB % BN != 0:
            b_p = tl.where(o_key[:, None] < FAR, b_p, 0.0)
        b_p *= b_sign[None, :]
        b_pt = b_p.to(b_do0.dtype)
        b_dv0 = tl.dot(b_pt, b_do0, b_dv0, input_precision=PREC)
        if DV1 > 0:
            b_dv1 = tl.dot(b_pt, b_do1, b_dv1, input_precision=PREC)
        b_ds = b_p * (dot_rows(b_v0, b_v1, b_do0, b_do1, DV1, PREC) - b_delta[None, :])
        b_ds = b_ds.to(b_q0.dtype)
        b_dk0 = tl.dot(b_ds, b_q0, b_dk0, input_precision=PREC)
        if DK1 > 0:
            b_dk1 = tl.dot(b_ds, b_q1, b_dk1, input_precision=PREC)
        if DQ:  # transposed, because BM is smaller than the 64 rows that the matrix units take
            o_part = (o_n - i_first) * part_heads + i_h - first_head
            o_part = ((o_part * SLOTS + o_pair % SLOTS) * G + o_g) * DK
            b_dq = tl.trans(tl.dot(tl.trans(b_k0), b_ds, input_precision=PREC)) * scale  # [BM, DK0]
            store_tile(p_part, o_part, m_row, b_dq, 0, DK0, DK, False)
            if DK1 > 0:
                b_dq = tl.trans(tl.dot(tl.trans(b_k1), b_ds, input_precision=PREC)) * scale
                store_tile(p_part, o_part, m_row, b_dq, DK0, DK1, DK, False)
    o_out = tl.program_id(0).to(tl.int64) * ROWS + i_sub * BN + tl.arange(0, BN)
    store_tile(p_dk, o_out * DK, o_key >= 0, b_dk0 * scale, 0, DK0, DK, False)
    store_tile(p_dv, o_out * DV, o_key >= 0, b_dv0, 0, DV0, DV, False)
    if DK1 > 0:
        store_tile(p_dk, o_out * DK, o_key >= 0, b_dk1 * scale, DK0, DK1, DK, False)
    if DV1 > 0:
        store_tile(p_dv, o_out * DV, o_key >= 0, b_dv1, DV0, DV1, DV, False)


@triton.jit
def _reduce_piece(
    p_part, p_sum, p_x, p_run_edges, p_blocks, BINS, first_head, first_key, begin, count, i_piece,
    H: tl.constexpr, D: tl.constexpr, LB: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Add BN keys by BD columns of the partials p_part [count,ROWS,D] of one block and KV head to those of the windows
    before in p_sum [M,H,D]; the last window writes the whole to p_x [M,H,D] instead.
    """
    i_bin, i_h = tl.program_id(0), first_head + tl.program_id(1)
    first, end = tl.load(p_blocks + i_bin), tl.load(p_blocks + BINS + i_bin)
    i_key = first_key + tl.program_id(1) * BINS + i_bin
    window = tl.load(p_run_edges + first_key) + begin
    i_run = tl.maximum(tl.load(p_run_edges + i_key), window)
    n_runs = tl.minimum(tl.load(p_run_edges + i_key + 1), window + count) - i_run
    o_key = i_piece // tl.cdiv(D, BD) * BN + tl.arange(0, BN)  # [BN]
    o_col = i_piece % tl.cdiv(D, BD) * BD + tl.arange(0, BD)
    m_key = (o_key < LB) & (first + o_key < end)
    if not (FIRST or LAST):  # a sum that nothing is added to stays
        m_key = m_key & (n_runs > 0)
    m_tile = m_key[:, None] & (o_col < D)[None, :]
    o_tile = o_key[:, None] * D + o_col[None, :]
    o_x = (((first + o_key).to(tl.int64) * H + i_h) * D)[:, None] + o_col[None, :]
    b_sum = tl.zeros([BN, BD], tl.float32)
    if not FIRST:
        b_sum += tl.load(p_sum + o_x, mask=m_tile, other=0.0)
    p_run = p_part + (i_run - window).to(tl.int64) * (ROWS * D)
    for i in range(0, n_runs, RUNS_AHEAD):
        for j in tl.static_range(RUNS_AHEAD):  # loads that wait for each other's addition took most of the time
            b_sum += tl.load(p_run + o_tile, mask=m_tile & (i + j < n_runs), other=0.0)
            p_run += ROWS * D
    if LAST:
        tl.store(p_x + o_x, b_sum.to(p_x.dtype.element_ty), mask=m_tile)
    else:
        tl.store(p_sum + o_x, b_sum, mask=m_tile)


@launched
@triton.jit(do_not_specialize=["BINS", "first_head", "first_key", "begin", "count"])
def reduce_kernel(
    p_dks, p_dvs, p_dk_sum, p_dv_sum, p_dk, p_dv, p_run_edges, p_blocks, BINS, first_head, first_key, begin, count,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, LB: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr,
    BDK: tl.constexpr, BDV: tl.constexpr, PIECES: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Add up what one launch of `dkv_kernel` left of one block and KV head, which are from `first_key` and `first_head`
    on, a piece a program: the first PIECES are of dk, the others of dv.

    A block that no query selected gets zeros. Keys of no block do not exist: every key belongs to one.
    """
    i_piece = tl.program_id(2)
    if i_piece < PIECES:
        _reduce_piece(
            p_dks, p_dk_sum, p_dk, p_run_edges, p_blocks, BINS, first_head, first_key, begin, count, i_piece,
            H, DK, LB, ROWS, BN, BDK, FIRST, LAST,
        )  # fmt: skip
    else:
        _reduce_piece(
            p_dvs, p_dv_sum, p_dv, p_run_edges, p_blocks, BINS, first_head, first_key, begin, count, i_piece - PIECES,
            H, DV, LB, ROWS, BN, BDV, FIRST, LAST,
        )  # fmt: skip
