"""The gradient of attention to ranges of keys in two kernels: dq by queries, dk and dv by keys.

Nothing is added atomically: it is the same bit for bit in every run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.backward_preprocess import load_stats
from nsa.kernels.common.launch import launched_in_two_forms
from nsa.kernels.common.sizes import cdiv, rows_last
from nsa.kernels.common.split_reduce import reduce_splits
from nsa.kernels.common.tiles import (
    LOG2E,
    add_product,
    dot_rows,
    load_keys,
    load_pair,
    load_queries,
    mask_free,
    store_pair,
    zeros_pair,
)
from nsa.kernels.common.tma import query_tiles, use_tma
from nsa.kernels.ranges.forward import key_boxes, keys_of, sizes_of, strides_of, tile_of
from nsa.kernels.ranges.key_ranges import KeyRanges


@launched_in_two_forms
@triton.jit(do_not_specialize=["p_lo", "p_hi", "s_range", "T", "H", "B", "N", "S"])
def _backward_q(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_do, p_stats, p_dq, p_lo, p_hi, s_range, T, H, B, N, S,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PREC: tl.constexpr, ADD: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """One program: dq of BM // GP tokens of one KV head, written to p_dq or added to it."""
    i_h, i_b, i_first, i_last, o_g, o_t, m_row = tile_of(tl.program_id(0), T, H, B, N, G, GP, BM)
    o_row = (i_b * T + o_t) * (H * G) + i_h * G + o_g
    o_q = o_t.to(tl.int64) * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
    b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_q, m_row, DK, True)  # [BM, DK]
    b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, True)  # [BM, DV]
    b_lse, b_delta, b_sign = load_stats(p_stats, o_row, m_row)
    b_lo, b_hi, i_lo, i_hi, left, right, n = keys_of(
        p_lo + i_b * s_range, p_hi + i_b * s_range, o_t, i_first, i_last, BN
    )
    p_kh = p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh
    p_vh = p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh
    i_row = i_b.to(tl.int32) * S

    b_dq0, b_dq1 = zeros_pair(BM, DK)
    for MASKED in tl.static_range(2):
        for i in range(0 if MASKED else left, left + n - right if MASKED else right):
            i_key = i_lo + (tl.where(i < left, i, i + right - left) if MASKED else i) * BN
            o_s = i_key + tl.arange(0, BN)  # [BN]
            m_s = o_s < i_hi
            o_at = o_s.to(tl.int64)
            b_k0, b_k1 = load_keys(p_kh, d_k0, d_k1, o_at * s_ks, m_s, i_row + i_key, i_h * DK, DK, MASKED, TMA)
            b_v0, b_v1 = load_keys(p_vh, d_v0, d_v1, o_at * s_vs, m_s, i_row + i_key, i_h * DV, DV, MASKED, TMA)
            b_p = tl.exp2(dot_rows(b_q0, b_q1, b_k0, b_k1, DK, PREC) * (scale * LOG2E) - b_lse[:, None])  # [BM, BN]
            b_ds = b_p * (dot_rows(b_do0, b_do1, b_v0, b_v1, DV, PREC) - b_delta[:, None])  # [BM, BN]
            if MASKED:
                m_tile = (o_s[None, :] >= b_lo[:, None]) & (o_s[None, :] < b_hi[:, None])
                b_ds = tl.where(m_tile, b_ds, 0.0)  # after the product, which keeps values out that are no numbers
            b_dq0, b_dq1 = add_product(b_dq0, b_dq1, b_ds.to(b_k0.dtype), b_k0, b_k1, DK, PREC)

    b_f = (b_sign * scale)[:, None]
    store_pair(p_dq, o_row * DK, m_row, b_dq0 * b_f, b_dq1 * b_f, DK, ADD)


@launched_in_two_forms
@triton.jit(do_not_specialize=["p_qlo", "p_qhi", "s_range", "T", "S", "H", "B", "SPLIT"])
def _backward_kv(
    p_q, p_k, p_v, p_do, d_q0, d_q1, d_do0, d_do1, p_stats, p_dk, p_dv, p_qlo, p_qhi,
    s_range, T, S, H, B, SPLIT,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """One program: BN keys of one KV head and the tokens [i_split * SPLIT, (i_split + 1) * SPLIT) that read them.

    p_dk, p_dv [splits,B,S,H,D]: every split of every key is written, with zeros where no token reads it. Keys are the
    rows of the tiles, so that p and ds stay in registers as the left operand.
    """
    TB: tl.constexpr = BM // GP
    i_h = tl.program_id(0) % H
    i_b = (tl.program_id(0) // H % B).to(tl.int64)
    i_first = tl.program_id(0) // (H * B) * BN
    i_split = tl.program_id(1)
    o_s = i_first + tl.arange(0, BN)  # [BN]
    m_s = o_s < S
    p_kh = p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh
    p_vh = p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh
    b_k0, b_k1 = load_pair(p_kh, o_s.to(tl.int64) * s_ks, m_s, DK, True)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_vh, o_s.to(tl.int64) * s_vs, m_s, DV, True)  # [BN, DV]
    i_end = tl.minimum((i_split + 1) * SPLIT, T)
    p_qlo += i_b * s_range
    p_qhi += i_b * s_range
    b_qlo = tl.load(p_qlo + o_s, mask=m_s, other=T)
    b_qhi = tl.minimum(tl.load(p_qhi + o_s, mask=m_s, other=0), i_end)
    i_last = tl.minimum(i_first + BN, S) - 1
    i_lo = tl.maximum(tl.load(p_qlo + i_first), i_split * SPLIT)
    i_hi = tl.minimum(tl.load(p_qhi + i_last), i_end)
    i_full = tl.where(i_first + BN <= S, tl.load(p_qlo + i_last), T)
    left, right, n = mask_free(i_lo, i_full, tl.minimum(tl.load(p_qhi + i_first), i_end), i_hi, TB)
    i_row = i_b * T * (H * G) + i_h * G
    i_token = i_b.to(tl.int32) * T
    p_qh = p_q + i_b * s_qb + i_h.to(tl.int64) * G * s_qh
    p_doh = p_do + i_row * DV

    b_dk0, b_dk1 = zeros_pair(BN, DK)
    b_dv0, b_dv1 = zeros_pair(BN, DV)
    for MASKED in tl.static_range(2):
        for i in range(0 if MASKED else left, left + n - right if MASKED else right):
            i_t = i_lo + (tl.where(i < left, i, i + right - left) if MASKED else i) * TB
            o_g = tl.arange(0, BM) % GP  # [BM]
            o_t = i_t + tl.arange(0, BM) // GP
            m_row = (o_t < i_end) & (o_g < G)
            ROWS_MASKED: tl.constexpr = MASKED or G != GP
            o_row = o_t.to(tl.int64) * (H * G) + o_g
            o_q = o_t.to(tl.int64) * s_qt + o_g.to(tl.int64) * s_qh
            b_q0, b_q1 = load_queries(p_qh, d_q0, d_q1, o_q, m_row, i_token + i_t, i_h * G, BM, DK, ROWS_MASKED, TMA)
            b_do0, b_do1 = load_queries(
                p_doh, d_do0, d_do1, o_row * DV, m_row, i_token + i_t, i_h * G, BM, DV, ROWS_MASKED, TMA
            )
            b_lse, b_delta, b_sign = load_stats(p_stats + i_row, o_row, m_row)
            b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK, PREC) * (scale * LOG2E) - b_lse[None, :])  # [BN, BM]
            if MASKED:
                b_p = tl.where((o_t[None, :] >= b_qlo[:, None]) & (o_t[None, :] < b_qhi[:, None]), b_p, 0.0)
            b_p *= b_sign[None, :]
            b_dv0, b_dv1 = add_product(b_dv0, b_dv1, b_p.to(b_do0.dtype), b_do0, b_do1, DV, PREC)
            b_ds = b_p * (dot_rows(b_v0, b_v1, b_do0, b_do1, DV, PREC) - b_delta[None, :])  # [BN, BM]
            b_dk0, b_dk1 = add_product(b_dk0, b_dk1, b_ds.to(b_q0.dtype), b_q0, b_q1, DK, PREC)

    o_out = ((i_split * B + i_b) * S + o_s) * H + i_h  # [BN]
    store_pair(p_dk, o_out * DK, m_s, b_dk0 * scale, b_dk1 * scale, DK, False)
    store_pair(p_dv, o_out * DV, m_s, b_dv0, b_dv1, DV, False)


# --- launching ---


def ranges_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, stats: Tensor, ranges: KeyRanges, scale: float,
    dq: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v.

    Args:
        do: gradient of `o`, or of what a gate makes of it, [B,T,Hq,Dv].
        q, k, v, ranges, scale: as in `ranges_forward`.
        stats: what `backward_preprocess` gives of the forward's output, or `combine.stats` of that under a gate,
            contiguous [B,T,Hq].
        dq: contiguous [B,T,Hq,Dk]; given, the gradient is added to it instead of a new tensor.
    """
    q, k, v = rows_last(q), rows_last(k), rows_last(v)
    added, dq = dq is not None, torch.empty_like(q, memory_format=torch.contiguous_format) if dq is None else dq
    do = do.contiguous()
    _launch_q(q, k, v, do, stats, dq, ranges, scale, added)
    dk, dv = _launch_kv(q, k, v, do, stats, ranges, scale)
    return dq, dk, dv


def _launch_q(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, stats: Tensor, dq: Tensor, ranges: KeyRanges, scale: float, added: bool
) -> None:
    sizes = sizes_of(q, k, v, f"{ranges.branch}_backward_q", use_tma(k, v))
    n = cdiv(q.shape[1], sizes["BM"] // sizes["GP"])
    if dq.numel():
        _backward_q[(n * k.shape[2] * q.shape[0],)](
            q, k, v, *key_boxes(k, v, sizes), do, stats, dq, ranges.lo, ranges.hi, ranges.s_query, q.shape[1],
            k.shape[2], q.shape[0], n, k.shape[1], *strides_of(q, k, v), scale,
            ADD=added, **sizes,
        )  # fmt: skip


def _launch_kv(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, stats: Tensor, ranges: KeyRanges, scale: float
) -> tuple[Tensor, Tensor]:
    sizes = sizes_of(q, k, v, f"{ranges.branch}_backward_kv", use_tma(q, do))
    box, tma = (sizes["BM"] // sizes["GP"], sizes["GP"]), sizes["TMA"]
    batch, keys, heads = k.shape[:3]
    splits = ranges.splits
    wide = k.dtype if splits == 1 else torch.float32
    dk, dv = (torch.empty(splits, *x.shape, dtype=wide, device=x.device) for x in (k, v))
    if dk.numel():
        _backward_kv[(cdiv(keys, sizes["BN"]) * heads * batch, splits)](
            q, k, v, do, *query_tiles(q, *box, tma), *query_tiles(do, *box, tma), stats, dk, dv,
            ranges.q_lo, ranges.q_hi, ranges.s_key, q.shape[1], keys, heads,
            batch, max(1, cdiv(q.shape[1], splits)), *strides_of(q, k, v), scale,
            **sizes,
        )  # fmt: skip
    if splits == 1:
        return dk[0], dv[0]
    return reduce_splits(dk, dv, k.dtype)
