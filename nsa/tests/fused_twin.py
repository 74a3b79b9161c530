"""The fused gradients in plain Triton: what `ranges.fused_gluon` and `selected.fused_gluon` compute, as the same work.

The interpreter runs it in that one's place, one program after the other, so that sums need no atomics. On a GPU it
would gain nothing over two kernels, which do two products more: what makes the fused gradient fast is how its warps
share the work.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.backward_preprocess import load_stats
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, pad_group
from nsa.kernels.common.tiles import LOG2E, add_product, dot_rows, load_pair, store_pair, zeros_pair
from nsa.kernels.ranges.fused import Run
from nsa.kernels.selected import fused as selected
from nsa.kernels.selected.addresses import load_pairs, query_of


@launched
@triton.jit(do_not_specialize=["T", "S", "H", "H0", "NH", "B", "SPLIT", "SPLITS", "s_range", "s_stats"])
def _backward_qkv(
    p_q, p_k, p_v, p_do, p_stats, p_dq, p_dk, p_dv, p_qlo, p_qhi, s_range, s_stats, T, S, H, H0, NH, B, SPLIT, SPLITS,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, ADD: tl.constexpr, DK: tl.constexpr,
    DV: tl.constexpr,
):  # fmt: skip
    """One program: BN keys of one of the NH KV heads from H0 on, and one split, SPLIT tokens, of the queries.

    The last split comes first, because its queries read the most compressed keys; the key tiles of a split come one
    after another, so that all of them add to the same rows of dq at the same time.

    Args:
        p_stats: fp32 [2,B,H,s_stats], see `backward_preprocess`.
        p_dq: fp32 [B,T,NH*G,DK]; scale * dq is the gradient. It is added to.
        p_dk, p_dv: [B,S,H,D*]; with ADD fp32, and added to; else every key is written.
    """
    TB: tl.constexpr = BM // GP
    tiles = tl.cdiv(S, BN)
    i_item = tl.program_id(0)
    i_first = i_item % tiles * BN
    i_local = i_item // tiles % NH
    i_h = H0 + i_local
    i_b = (i_item // (tiles * NH) % B).to(tl.int64)
    i_begin = (SPLITS - 1 - i_item // (tiles * NH * B)) * SPLIT
    i_end = tl.minimum(i_begin + SPLIT, T)
    p_qlo += i_b * s_range
    p_qhi += i_b * s_range
    i_last = tl.minimum(i_first + BN, S) - 1
    i_lo = tl.maximum(tl.load(p_qlo + i_first), i_begin) // TB * TB
    n = tl.cdiv(tl.maximum(tl.minimum(tl.load(p_qhi + i_last), i_end) - i_lo, 0), TB)
    if not ADD:
        n = tl.maximum(n, 1)  # keys that no query reads are written, too
    # All programs with as many tiles begin such that they come to the same tokens at the same time, while these are in
    # the level-2 cache: neighbouring key tiles of a window share most of their queries.
    i_tile = (n - i_lo // TB % tl.maximum(n, 1)) % tl.maximum(n, 1)

    o_s = i_first + tl.arange(0, BN)  # [BN]
    m_s = o_s < S
    b_qlo = tl.load(p_qlo + o_s, mask=m_s, other=T)
    b_qhi = tl.minimum(tl.load(p_qhi + o_s, mask=m_s, other=0), i_end)
    o_at = o_s.to(tl.int64)
    b_k0, b_k1 = load_pair(p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh, o_at * s_ks, m_s, DK, True)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh, o_at * s_vs, m_s, DV, True)  # [BN, DV]
    b_dk0, b_dk1 = zeros_pair(BN, DK)
    b_dv0, b_dv1 = zeros_pair(BN, DV)
    o_g = tl.arange(0, BM) % GP  # [BM]
    p_lse = p_stats + (i_b * H + i_h) * s_stats
    for _ in range(n):
        o_t = i_lo + i_tile * TB + tl.arange(0, BM) // GP
        m_row = (o_t < T) & (o_g < G)
        o_head = o_t.to(tl.int64) * (H * G) + i_h * G + o_g + i_b * T * (H * G)
        o_q = o_t.to(tl.int64) * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
        b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_q, m_row, DK, True)
        b_do0, b_do1 = load_pair(p_do, o_head * DV, m_row, DV, True)
        o_number = o_t.to(tl.int64) * GP + o_g
        b_lse = tl.load(p_lse + o_number, mask=m_row, other=float("inf"))
        b_delta = tl.load(p_lse + B * H * s_stats + o_number, mask=m_row, other=0.0)
        b_sign = tl.where((b_delta.to(tl.int32, bitcast=True) & 1) != 0, -1.0, 1.0)
        b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK, "ieee") * (scale * LOG2E) - b_lse[None, :])  # [BN, BM]
        b_p = tl.where((o_t[None, :] >= b_qlo[:, None]) & (o_t[None, :] < b_qhi[:, None]), b_p * b_sign[None, :], 0.0)
        b_ds = b_p * (dot_rows(b_v0, b_v1, b_do0, b_do1, DV, "ieee") - b_delta[None, :])  # [BN, BM]
        b_p, b_ds = b_p.to(b_do0.dtype), b_ds.to(b_q0.dtype)
        b_dv0, b_dv1 = add_product(b_dv0, b_dv1, b_p, b_do0, b_do1, DV, "ieee")
        b_dk0, b_dk1 = add_product(b_dk0, b_dk1, b_ds, b_q0, b_q1, DK, "ieee")
        b_dq0, b_dq1 = zeros_pair(BM, DK)
        b_dq0, b_dq1 = add_product(b_dq0, b_dq1, tl.trans(b_ds), b_k0, b_k1, DK, "ieee")
        o_dq = ((i_b * T + o_t) * (NH * G) + i_local * G + o_g) * DK
        store_pair(p_dq, o_dq, m_row, b_dq0, b_dq1, DK, True)
        i_tile = tl.where(i_tile + 1 < n, i_tile + 1, 0)

    o_row = (i_b * S + o_s) * H + i_h  # [BN]
    if n > 0:
        store_pair(p_dk, o_row * DK, m_s, b_dk0 * scale, b_dk1 * scale, DK, ADD)
        store_pair(p_dv, o_row * DV, m_s, b_dv0, b_dv1, DV, ADD)


def launch(run: Run, q: Tensor, do: Tensor, dq: Tensor, scale: float, first_head: int, run_heads: int) -> None:
    """As `fused_gluon.launch`."""
    (k, v, stats, where), tile = vars(run.branch).values(), run.tile
    batch, keys, heads, dk = k.shape
    group = q.shape[2] // heads
    _backward_qkv[(cdiv(keys, tile.BN) * run_heads * batch * run.splits,)](
        q, k, v, do, stats, dq, run.dk, run.dv, where.q_lo, where.q_hi, where.s_key, stats.stride(2), q.shape[1], keys,
        heads, first_head, run_heads, batch, run.split, run.splits, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        scale,
        G=group, GP=pad_group(group), BM=tile.BM, BN=tile.BN, ADD=run.adds, DK=dk, DV=v.shape[-1], num_warps=4,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["BINS", "M", "K", "H0", "NH"])
def _backward_selected(
    p_q, p_k, p_v, p_do, p_dq, p_dk, p_dv, p_order, p_edges, p_segment_edges, p_segment_key, p_blocks, p_stats,
    p_limit, BINS, M, K, H0, NH, s_ks, s_kh, s_vs, s_vh, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, NG: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    LB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SLOTS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """One program: a segment of one of the NH KV heads from H0 on, and BN keys of its block of LB. Arguments as of
    `selected.fused_gluon`, whose descriptors are pointers here.
    """
    TB: tl.constexpr = BM // GP
    i_segment = tl.load(p_segment_edges + H0 * K) + tl.program_id(0)
    if i_segment >= tl.load(p_segment_edges + (H0 + NH) * K):
        return
    i_bin = tl.load(p_segment_key + i_segment)
    begin = tl.load(p_edges + i_bin) + (i_segment - tl.load(p_segment_edges + i_bin)) * PAIRS
    n_pairs = tl.minimum(PAIRS, tl.load(p_edges + i_bin + 1) - begin)
    i_h = i_bin // K
    i_first = tl.load(p_blocks + i_bin % BINS)
    i_end = tl.minimum(i_first + LB, M)
    o_key = i_first + tl.program_id(1) * BN + tl.arange(0, BN)  # [BN]
    m_key = o_key < i_end
    o_at = o_key.to(tl.int64)
    b_k0, b_k1 = load_pair(p_k + i_h.to(tl.int64) * s_kh, o_at * s_ks, m_key, DK, True)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_v + i_h.to(tl.int64) * s_vh, o_at * s_vs, m_key, DV, True)  # [BN, DV]
    b_dk0, b_dk1 = zeros_pair(BN, DK)
    b_dv0, b_dv1 = zeros_pair(BN, DV)
    o_r = tl.arange(0, BM)
    for i in range(tl.cdiv(n_pairs, TB)):
        o_pos = i * TB + o_r // GP
        m_row = (o_pos < n_pairs) & (o_r % GP < G)
        o_n = query_of(load_pairs(p_order + begin, o_pos, n_pairs), H, SLOTS)
        o_row = o_n * (H * G) + i_h * G + o_r % GP
        b_q0, b_q1 = load_pair(p_q, o_row * DK, m_row, DK, True)
        b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, True)
        b_lse, b_delta, b_sign = load_stats(p_stats, o_row, m_row)
        b_limit = tl.load(p_limit + o_n)
        b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK, "ieee") * (scale * LOG2E) - b_lse[None, :])  # [BN, BM]
        seen = m_key[:, None] & (o_key[:, None] <= b_limit[None, :])
        b_p = tl.where(seen, b_p * b_sign[None, :], 0.0)
        b_ds = b_p * (dot_rows(b_v0, b_v1, b_do0, b_do1, DV, "ieee") - b_delta[None, :])
        b_p, b_ds = b_p.to(b_do0.dtype), b_ds.to(b_q0.dtype)
        b_dv0, b_dv1 = add_product(b_dv0, b_dv1, b_p, b_do0, b_do1, DV, "ieee")
        b_dk0, b_dk1 = add_product(b_dk0, b_dk1, b_ds, b_q0, b_q1, DK, "ieee")
        b_dq0, b_dq1 = zeros_pair(BM, DK)
        b_dq0, b_dq1 = add_product(b_dq0, b_dq1, tl.trans(b_ds), b_k0, b_k1, DK, "ieee")
        store_pair(p_dq, (o_n * NG + (i_h - H0) * G + o_r % GP) * DK, m_row, b_dq0, b_dq1, DK, True)
    o_row = o_at * H + i_h
    store_pair(p_dk, o_row * DK, m_key, b_dk0 * scale, b_dk1 * scale, DK, True)
    store_pair(p_dv, o_row * DV, m_key, b_dv0, b_dv1, DV, True)


def launch_selected(
    run: selected.Run, q: Tensor, do: Tensor, dq: Tensor, scale: float, first_head: int, run_heads: int
) -> None:
    """As `selected.fused_gluon.launch`."""
    (k, v, stats, indices, where), tile = vars(run.branch).values(), run.tile
    heads, group = k.shape[2], q.shape[2] // k.shape[2]
    _backward_selected[(run.at_most(run_heads), cdiv(where.l_sel, tile.BN))](
        q, k, v, do, dq, run.dk, run.dv, *run.segments.arrays, where.blocks, stats, where.queries[2], where.bins,
        where.keys, run.keys, first_head, run_heads, *k.stride()[1:3], *v.stride()[1:3], scale,
        H=heads, G=group, GP=pad_group(group), NG=dq.shape[2], DK=k.shape[-1], DV=v.shape[-1], LB=where.l_sel,
        BM=tile.BM, BN=tile.BN, SLOTS=indices.shape[-1], PAIRS=run.segments.pairs, num_warps=4,
    )  # fmt: skip
