"""Attention in which every query reads one interval of keys: the kernels of the window and of the compressed branch.

Query t reads keys lo[t] <= s < hi[t]; key s is read by the tokens q_lo[s] <= t < q_hi[s]. All four never decrease, so
the tile of consecutive tokens reads one interval too, whose inner part is common to all of them and needs no mask.
Packed sequences, and chunks of queries that begin later than the keys, are only other numbers in these arrays. The
gradient takes two passes (dq by queries, dk and dv by keys) that add nothing atomically: it is the same bit for bit in
every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common import split_reduce as part_sums
from nsa.kernels.common.backward_preprocess import load_stats
from nsa.kernels.common.launch import launched
from nsa.kernels.common.softmax import add_keys, begin, end, not_a_number, online, only, out_of_range
from nsa.kernels.common.tiles import (
    LOG2E,
    cdiv,
    dot_precision,
    dot_rows,
    load_keys,
    load_pair,
    load_queries,
    mask_free,
    pad_group,
    rows_last,
    store_tile,
    widths,
)
from nsa.kernels.common.tma import copy_engine, key_tiles, query_tiles
from nsa.kernels.tuning.lookup import config_for


@dataclass(frozen=True)
class Spans:
    """Which keys each query reads, the same in every batch entry or other ones in each.

    Attributes:
        branch: names the rows of the configuration table.
        lo, hi: int32 [T] or [B,T], contiguous: the keys of each query.
        q_lo, q_hi: int32 [S] or [B,S], contiguous: the queries of each key.
        parts: how many programs share one key tile's queries in the gradient of k and v.
    """

    branch: str
    lo: Tensor
    hi: Tensor
    q_lo: Tensor
    q_hi: Tensor
    parts: int

    @property
    def s_query(self) -> int:
        """From one batch entry to the next in lo and hi."""
        return self.lo.shape[-1] if self.lo.dim() > 1 else 0

    @property
    def s_key(self) -> int:
        """From one batch entry to the next in q_lo and q_hi."""
        return self.q_lo.shape[-1] if self.q_lo.dim() > 1 else 0


# --- forward ---


@triton.jit
def _forward_step(
    b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_key, i_hi, p_k, p_v, d_k0, d_k1, d_v0, d_v1, i_row, i_h,
    s_ks, s_vs, scale,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BN: tl.constexpr, MASKED: tl.constexpr, ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
    AGAIN: tl.constexpr,
):  # fmt: skip
    """One tile of keys; AGAIN: the second time, without the values that no row reads."""
    o_s = i_key + tl.arange(0, BN)  # [BN]
    m_s = o_s < i_hi
    o_at = o_s.to(tl.int64)
    b_k0, b_k1 = load_keys(p_k, d_k0, d_k1, o_at * s_ks, m_s, i_row + i_key, i_h * DK, DK, DK0, DK1, MASKED, TMA)
    b_v0, b_v1 = load_keys(p_v, d_v0, d_v1, o_at * s_vs, m_s, i_row + i_key, i_h * DV, DV, DV0, DV1, MASKED, TMA)
    if AGAIN and TMA:
        b_v0, b_v1 = only(b_v0, m_s), only(b_v1, m_s)
    b_s = dot_rows(b_q0, b_q1, b_k0, b_k1, DK1, PREC) * scale  # [BM, BN]
    m_tile = (o_s[None, :] >= b_lo[:, None]) & (o_s[None, :] < b_hi[:, None])
    return add_keys(b_m, b_l, b_o0, b_o1, b_s, m_tile, b_v0, b_v1, DV1, MASKED, ONLINE, PREC)


@launched
@triton.jit(do_not_specialize=["T", "H", "B", "N", "S", "s_span"])
def _forward(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_o, p_lse, p_lo, p_hi, s_span, T, H, B, N, S,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """One program: BM // GP tokens of one KV head. N tiles of tokens, the last ones first: they read the most keys."""
    TB: tl.constexpr = BM // GP
    i_h = tl.program_id(0) % H
    i_b = (tl.program_id(0) // H % B).to(tl.int64)
    i_tile = N - 1 - tl.program_id(0) // (H * B)
    i_first = i_tile * TB
    i_last = tl.minimum(i_first + TB - 1, T - 1)
    o_g = tl.arange(0, BM) % GP  # [BM]
    o_t = i_first + tl.arange(0, BM) // GP
    m_row = (o_t < T) & (o_g < G)
    o_t = tl.minimum(o_t, T - 1)
    o_q = o_t.to(tl.int64) * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
    b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_q, m_row, DK, DK0, DK1, True)  # [BM, DK]
    p_lo += i_b * s_span
    p_hi += i_b * s_span
    b_lo = tl.load(p_lo + o_t)
    b_hi = tl.load(p_hi + o_t)
    i_lo = tl.load(p_lo + i_first)
    i_hi = tl.load(p_hi + i_last)
    left, right, n = mask_free(i_lo, tl.load(p_lo + i_last), tl.load(p_hi + i_first), i_hi, BN)
    p_kh = p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh
    p_vh = p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh
    i_row = i_b.to(tl.int32) * S

    b_m, b_l, b_o0, b_o1 = begin(BM, DV0, DV1, ONLINE, False)
    for i in range(left, right):
        b_m, b_l, b_o0, b_o1 = _forward_step(
            b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_lo + i * BN, i_hi, p_kh, p_vh,
            d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale,
            DK, DK0, DK1, DV, DV0, DV1, BN, False, ONLINE, PREC, TMA, False,
        )  # fmt: skip
    masked = left + n - right
    if not ONLINE:
        masked = tl.where(left < right, masked, 0)  # with so few keys all are computed below
    for i in range(0, masked):
        i_key = i_lo + tl.where(i < left, i, i + right - left) * BN
        b_m, b_l, b_o0, b_o1 = _forward_step(
            b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_key, i_hi, p_kh, p_vh,
            d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale,
            DK, DK0, DK1, DV, DV0, DV1, BN, True, ONLINE, PREC, TMA, False,
        )  # fmt: skip
    again = 0
    if not ONLINE:
        again = out_of_range(b_l, m_row & (b_lo < b_hi))
    if TMA:
        again = tl.maximum(again, not_a_number(b_o0, b_o1, DV1))
    if TMA or not ONLINE:
        for _ in range(again):
            b_m, b_l, b_o0, b_o1 = begin(BM, DV0, DV1, ONLINE, True)
            for i in tl.range(0, n, num_stages=1):  # this is rare: in few registers
                b_m, b_l, b_o0, b_o1 = _forward_step(
                    b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_lo + i * BN, i_hi, p_kh, p_vh,
                    d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale,
                    DK, DK0, DK1, DV, DV0, DV1, BN, True, True, PREC, TMA, True,
                )  # fmt: skip

    o_row = (i_b * T + o_t) * (H * G) + i_h * G + o_g  # [BM]
    b_f, b_lse = end(b_m, b_l)
    store_tile(p_o, o_row * DV, m_row, b_o0 * b_f[:, None], 0, DV0, DV, False)
    if DV1 > 0:
        store_tile(p_o, o_row * DV, m_row, b_o1 * b_f[:, None], DV0, DV1, DV, False)
    tl.store(p_lse + o_row, b_lse, mask=m_row)


# --- gradient of q ---


@triton.jit
def _dq_step(
    b_q0, b_q1, b_do0, b_do1, b_dq0, b_dq1, b_lse, b_delta, b_lo, b_hi, i_key, i_hi, p_k, p_v,
    d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BN: tl.constexpr, MASKED: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    o_s = i_key + tl.arange(0, BN)  # [BN]
    m_s = o_s < i_hi
    o_at = o_s.to(tl.int64)
    b_k0, b_k1 = load_keys(p_k, d_k0, d_k1, o_at * s_ks, m_s, i_row + i_key, i_h * DK, DK, DK0, DK1, MASKED, TMA)
    b_v0, b_v1 = load_keys(p_v, d_v0, d_v1, o_at * s_vs, m_s, i_row + i_key, i_h * DV, DV, DV0, DV1, MASKED, TMA)
    b_p = tl.exp2(dot_rows(b_q0, b_q1, b_k0, b_k1, DK1, PREC) * scale - b_lse[:, None])  # [BM, BN]
    b_ds = b_p * (dot_rows(b_do0, b_do1, b_v0, b_v1, DV1, PREC) - b_delta[:, None])  # [BM, BN]
    if MASKED:
        m_tile = (o_s[None, :] >= b_lo[:, None]) & (o_s[None, :] < b_hi[:, None])
        b_ds = tl.where(m_tile, b_ds, 0.0)  # after the product, which keeps values out that are no numbers
    b_ds = b_ds.to(b_k0.dtype)
    b_dq0 = tl.dot(b_ds, b_k0, b_dq0, input_precision=PREC)
    if DK1 > 0:
        b_dq1 = tl.dot(b_ds, b_k1, b_dq1, input_precision=PREC)
    return b_dq0, b_dq1


@launched
@triton.jit(do_not_specialize=["T", "H", "B", "N", "S", "s_span"])
def _backward_q(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_do, p_stats, p_dq, p_lo, p_hi, s_span, T, H, B, N, S,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, PREC: tl.constexpr, ADD: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """One program: dq of BM // GP tokens of one KV head, written to p_dq or added to it."""
    TB: tl.constexpr = BM // GP
    i_h = tl.program_id(0) % H
    i_b = (tl.program_id(0) // H % B).to(tl.int64)
    i_tile = N - 1 - tl.program_id(0) // (H * B)
    i_first = i_tile * TB
    i_last = tl.minimum(i_first + TB - 1, T - 1)
    o_g = tl.arange(0, BM) % GP  # [BM]
    o_t = i_first + tl.arange(0, BM) // GP
    m_row = (o_t < T) & (o_g < G)
    o_t = tl.minimum(o_t, T - 1)
    o_row = (i_b * T + o_t) * (H * G) + i_h * G + o_g
    o_q = o_t.to(tl.int64) * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
    b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_q, m_row, DK, DK0, DK1, True)  # [BM, DK]
    b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, DV0, DV1, True)  # [BM, DV]
    b_lse, b_delta, b_sign = load_stats(p_stats, o_row, m_row)
    p_lo += i_b * s_span
    p_hi += i_b * s_span
    b_lo = tl.load(p_lo + o_t)
    b_hi = tl.load(p_hi + o_t)
    i_lo = tl.load(p_lo + i_first)
    i_hi = tl.load(p_hi + i_last)
    left, right, n = mask_free(i_lo, tl.load(p_lo + i_last), tl.load(p_hi + i_first), i_hi, BN)
    p_kh = p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh
    p_vh = p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh
    i_row = i_b.to(tl.int32) * S

    b_dq0 = tl.zeros([BM, DK0], tl.float32)
    b_dq1 = tl.zeros([BM, DK1 if DK1 > 0 else 16], tl.float32)
    for i in range(left, right):
        b_dq0, b_dq1 = _dq_step(
            b_q0, b_q1, b_do0, b_do1, b_dq0, b_dq1, b_lse, b_delta, b_lo, b_hi, i_lo + i * BN, i_hi, p_kh, p_vh,
            d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale * LOG2E,
            DK, DK0, DK1, DV, DV0, DV1, BN, False, PREC, TMA,
        )  # fmt: skip
    for i in range(0, left + n - right):
        i_key = i_lo + tl.where(i < left, i, i + right - left) * BN
        b_dq0, b_dq1 = _dq_step(
            b_q0, b_q1, b_do0, b_do1, b_dq0, b_dq1, b_lse, b_delta, b_lo, b_hi, i_key, i_hi, p_kh, p_vh,
            d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale * LOG2E,
            DK, DK0, DK1, DV, DV0, DV1, BN, True, PREC, TMA,
        )  # fmt: skip

    b_f = b_sign * scale
    store_tile(p_dq, o_row * DK, m_row, b_dq0 * b_f[:, None], 0, DK0, DK, ADD)
    if DK1 > 0:
        store_tile(p_dq, o_row * DK, m_row, b_dq1 * b_f[:, None], DK0, DK1, DK, ADD)


# --- gradients of k and v ---


@triton.jit
def _dkv_step(
    b_k0, b_k1, b_v0, b_v1, b_dk0, b_dk1, b_dv0, b_dv1, b_qlo, b_qhi, i_t, i_end,
    p_q, p_do, d_q0, d_q1, d_do0, d_do1, p_stats, i_row, i_head, s_qt, s_qh, H, scale,
    G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BM: tl.constexpr, MASKED: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """BM // GP tokens from i_t on. Keys are the rows, so that p and ds stay in registers as the left operand."""
    o_g = tl.arange(0, BM) % GP  # [BM]
    o_t = i_t + tl.arange(0, BM) // GP
    m_row = (o_t < i_end) & (o_g < G)
    ROWS_MASKED: tl.constexpr = MASKED or G != GP
    o_row = o_t.to(tl.int64) * (H * G) + o_g
    o_q = o_t.to(tl.int64) * s_qt + o_g.to(tl.int64) * s_qh
    i_row += i_t
    b_q0, b_q1 = load_queries(p_q, d_q0, d_q1, o_q, m_row, i_row, i_head, BM, DK, DK0, DK1, ROWS_MASKED, TMA)
    b_do0, b_do1 = load_queries(
        p_do, d_do0, d_do1, o_row * DV, m_row, i_row, i_head, BM, DV, DV0, DV1, ROWS_MASKED, TMA
    )
    b_lse, b_delta, b_sign = load_stats(p_stats, o_row, m_row)
    b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK1, PREC) * scale - b_lse[None, :])  # [BN, BM]
    if MASKED:
        b_p = tl.where((o_t[None, :] >= b_qlo[:, None]) & (o_t[None, :] < b_qhi[:, None]), b_p, 0.0)
    b_p *= b_sign[None, :]
    b_pt = b_p.to(b_do0.dtype)
    b_dv0 = tl.dot(b_pt, b_do0, b_dv0, input_precision=PREC)
    if DV1 > 0:
        b_dv1 = tl.dot(b_pt, b_do1, b_dv1, input_precision=PREC)
    b_ds = b_p * (dot_rows(b_v0, b_v1, b_do0, b_do1, DV1, PREC) - b_delta[None, :])  # [BN, BM]
    b_ds = b_ds.to(b_q0.dtype)
    b_dk0 = tl.dot(b_ds, b_q0, b_dk0, input_precision=PREC)
    if DK1 > 0:
        b_dk1 = tl.dot(b_ds, b_q1, b_dk1, input_precision=PREC)
    return b_dk0, b_dk1, b_dv0, b_dv1


@launched
@triton.jit(do_not_specialize=["T", "S", "H", "B", "PART", "s_span"])
def _backward_kv(
    p_q, p_k, p_v, p_do, d_q0, d_q1, d_do0, d_do1, p_stats, p_dk, p_dv, p_qlo, p_qhi,
    s_span, T, S, H, B, PART,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """One program: BN keys of one KV head and the tokens [i_part * PART, (i_part + 1) * PART) that read them.

    p_dk, p_dv [parts,B,S,H,D]: every part of every key is written, with zeros where no token reads it.
    """
    TB: tl.constexpr = BM // GP
    i_h = tl.program_id(0) % H
    i_b = (tl.program_id(0) // H % B).to(tl.int64)
    i_first = tl.program_id(0) // (H * B) * BN
    i_part = tl.program_id(1)
    o_s = i_first + tl.arange(0, BN)  # [BN]
    m_s = o_s < S
    p_kh = p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh
    p_vh = p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh
    b_k0, b_k1 = load_pair(p_kh, o_s.to(tl.int64) * s_ks, m_s, DK, DK0, DK1, True)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_vh, o_s.to(tl.int64) * s_vs, m_s, DV, DV0, DV1, True)  # [BN, DV]
    i_end = tl.minimum((i_part + 1) * PART, T)
    p_qlo += i_b * s_span
    p_qhi += i_b * s_span
    b_qlo = tl.load(p_qlo + o_s, mask=m_s, other=T)
    b_qhi = tl.minimum(tl.load(p_qhi + o_s, mask=m_s, other=0), i_end)
    i_last = tl.minimum(i_first + BN, S) - 1
    i_lo = tl.maximum(tl.load(p_qlo + i_first), i_part * PART)
    i_hi = tl.minimum(tl.load(p_qhi + i_last), i_end)
    i_full = tl.where(i_first + BN <= S, tl.load(p_qlo + i_last), T)
    left, right, n = mask_free(i_lo, i_full, tl.minimum(tl.load(p_qhi + i_first), i_end), i_hi, TB)
    i_row = i_b * T * (H * G) + i_h * G
    i_token = i_b.to(tl.int32) * T
    p_qh = p_q + i_b * s_qb + i_h.to(tl.int64) * G * s_qh
    p_doh = p_do + i_row * DV

    b_dk0 = tl.zeros([BN, DK0], tl.float32)
    b_dk1 = tl.zeros([BN, DK1 if DK1 > 0 else 16], tl.float32)
    b_dv0 = tl.zeros([BN, DV0], tl.float32)
    b_dv1 = tl.zeros([BN, DV1 if DV1 > 0 else 16], tl.float32)
    for i in range(left, right):
        b_dk0, b_dk1, b_dv0, b_dv1 = _dkv_step(
            b_k0, b_k1, b_v0, b_v1, b_dk0, b_dk1, b_dv0, b_dv1, b_qlo, b_qhi, i_lo + i * TB, i_end,
            p_qh, p_doh, d_q0, d_q1, d_do0, d_do1, p_stats + i_row, i_token, i_h * G,
            s_qt, s_qh, H, scale * LOG2E,
            G, GP, DK, DK0, DK1, DV, DV0, DV1, BM, False, PREC, TMA,
        )  # fmt: skip
    for i in range(0, left + n - right):
        i_t = i_lo + tl.where(i < left, i, i + right - left) * TB
        b_dk0, b_dk1, b_dv0, b_dv1 = _dkv_step(
            b_k0, b_k1, b_v0, b_v1, b_dk0, b_dk1, b_dv0, b_dv1, b_qlo, b_qhi, i_t, i_end,
            p_qh, p_doh, d_q0, d_q1, d_do0, d_do1, p_stats + i_row, i_token, i_h * G,
            s_qt, s_qh, H, scale * LOG2E,
            G, GP, DK, DK0, DK1, DV, DV0, DV1, BM, True, PREC, TMA,
        )  # fmt: skip

    o_row = ((i_part * B + i_b) * S + o_s) * H + i_h  # [BN]
    store_tile(p_dk, o_row * DK, m_s, b_dk0 * scale, 0, DK0, DK, False)
    store_tile(p_dv, o_row * DV, m_s, b_dv0, 0, DV0, DV, False)
    if DK1 > 0:
        store_tile(p_dk, o_row * DK, m_s, b_dk1 * scale, DK0, DK1, DK, False)
    if DV1 > 0:
        store_tile(p_dv, o_row * DV, m_s, b_dv1, DV0, DV1, DV, False)


# --- launching ---


def _sizes(q: Tensor, k: Tensor, v: Tensor, kernel: str, tma: bool) -> dict[str, Any]:
    """The compile-time arguments that all three kernels share, with the tile of `kernel`."""
    group = q.shape[2] // k.shape[2]
    gp = pad_group(group)
    return {
        "G": group, "GP": gp, "PREC": dot_precision(q.dtype), "TMA": tma, **widths(q.shape[-1], v.shape[-1]),
        **config_for(kernel + "_tma" if tma else kernel, q, v).launch(gp),
    }  # fmt: skip


def _key_tiles(k: Tensor, v: Tensor, sizes: dict[str, Any]) -> tuple[Any, ...]:
    return *key_tiles(k, sizes["BN"], sizes["TMA"]), *key_tiles(v, sizes["BN"], sizes["TMA"])


def _strides(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
    return (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])


def forward(q: Tensor, k: Tensor, v: Tensor, spans: Spans, scale: float) -> tuple[Tensor, Tensor]:
    """Attention of q [B,T,Hq,Dk] to its spans of k [B,S,Hkv,Dk], v [B,S,Hkv,Dv].

    Returns:
        o [B,T,Hq,Dv], 0 where a query reads no key; lse fp32 [B,T,Hq], natural logarithm, -inf there.
    """
    q, k, v = rows_last(q), rows_last(k), rows_last(v)
    batch, tokens, heads = q.shape[:3]
    tma = copy_engine(k, v)
    o = q.new_empty(batch, tokens, heads, v.shape[-1])
    lse = torch.empty(batch, tokens, heads, dtype=torch.float32, device=q.device)
    sizes = _sizes(q, k, v, f"{spans.branch}_forward", tma)
    n = cdiv(tokens, sizes["BM"] // sizes["GP"])
    if o.numel():
        _forward[(n * k.shape[2] * batch,)](
            q, k, v, *_key_tiles(k, v, sizes), o, lse, spans.lo, spans.hi, spans.s_query, tokens, k.shape[2], batch, n,
            k.shape[1], *_strides(q, k, v), scale * LOG2E.value, ONLINE=online(q, tma), **sizes,
        )  # fmt: skip
    return o, lse


def backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    stats: Tensor,
    spans: Spans,
    scale: float,
    dq: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v.

    Args:
        do: gradient of `o`, or of what a gate makes of it, [B,T,Hq,Dv].
        q, k, v, spans, scale: as in `forward`.
        stats: `row_stats` of the forward's output, or of that under a gate (`combine.stats`), contiguous [B,T,Hq].
        dq: contiguous [B,T,Hq,Dk]; given, the gradient is added to it instead of a new tensor.
    """
    q, k, v = rows_last(q), rows_last(k), rows_last(v)
    added, dq = dq is not None, torch.empty_like(q, memory_format=torch.contiguous_format) if dq is None else dq
    do = do.contiguous()
    _launch_q(q, k, v, do, stats, dq, spans, scale, added)
    dk, dv = _launch_kv(q, k, v, do, stats, spans, scale)
    return dq, dk, dv


def _launch_q(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, stats: Tensor, dq: Tensor, spans: Spans, scale: float, added: bool
) -> None:
    sizes = _sizes(q, k, v, f"{spans.branch}_backward_q", copy_engine(k, v))
    n = cdiv(q.shape[1], sizes["BM"] // sizes["GP"])
    if dq.numel():
        _backward_q[(n * k.shape[2] * q.shape[0],)](
            q, k, v, *_key_tiles(k, v, sizes), do, stats, dq, spans.lo, spans.hi, spans.s_query, q.shape[1],
            k.shape[2], q.shape[0], n, k.shape[1], *_strides(q, k, v), scale,
            ADD=added, **sizes,
        )  # fmt: skip


def _launch_kv(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, stats: Tensor, spans: Spans, scale: float
) -> tuple[Tensor, Tensor]:
    sizes = _sizes(q, k, v, f"{spans.branch}_backward_kv", copy_engine(q, do))
    box, tma = (sizes["BM"] // sizes["GP"], sizes["GP"]), sizes["TMA"]
    batch, keys, heads = k.shape[:3]
    parts = spans.parts
    wide = k.dtype if parts == 1 else torch.float32
    dk, dv = (torch.empty(parts, *x.shape, dtype=wide, device=x.device) for x in (k, v))
    if dk.numel():
        _backward_kv[(cdiv(keys, sizes["BN"]) * heads * batch, parts)](
            q, k, v, do, *query_tiles(q, *box, tma), *query_tiles(do, *box, tma), stats, dk, dv,
            spans.q_lo, spans.q_hi, spans.s_key, q.shape[1], keys, heads,
            batch, max(1, cdiv(q.shape[1], parts)), *_strides(q, k, v), scale,
            **sizes,
        )  # fmt: skip
    if parts == 1:
        return dk[0], dv[0]
    return part_sums.added_up(dk, dv, k.dtype)
