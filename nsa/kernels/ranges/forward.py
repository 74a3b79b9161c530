"""Attention in which every query reads one range of keys, forward: the window and the compressed branch.

A tile of consecutive tokens reads one range too (`key_ranges`), whose inner part is common to all of them and needs no
mask.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched_in_two_forms
from nsa.kernels.common.sizes import cdiv, dot_precision, pad_group, rows_last
from nsa.kernels.common.softmax import add_keys, begin, end, not_a_number, online, only, out_of_range
from nsa.kernels.common.tiles import LOG2E, dot_rows, load_keys, load_pair, mask_free, store_pair
from nsa.kernels.common.tma import key_tiles, use_tma
from nsa.kernels.ranges.key_ranges import KeyRanges
from nsa.kernels.tuning.lookup import config_for


@triton.jit
def tile_of(T, H, B, N, G: tl.constexpr, GP: tl.constexpr, BM: tl.constexpr):
    """What a program takes of N tiles of tokens, the last ones first, because they read the most keys.

    Returns:
        KV head and batch entry; first and last token; of each row [BM] head, token and whether there is such a row.
    """
    i_h = tl.program_id(0) % H
    i_b = (tl.program_id(0) // H % B).to(tl.int64)
    i_first = (N - 1 - tl.program_id(0) // (H * B)) * (BM // GP)
    o_g = tl.arange(0, BM) % GP
    o_t = i_first + tl.arange(0, BM) // GP
    m_row = (o_t < T) & (o_g < G)
    return i_h, i_b, i_first, tl.minimum(i_first + BM // GP - 1, T - 1), o_g, tl.minimum(o_t, T - 1), m_row


@triton.jit
def keys_of(p_lo, p_hi, o_t, i_first, i_last, BN: tl.constexpr):
    """The keys that the tokens o_t read, b_lo <= s < b_hi; those of the whole tile, and its steps as `mask_free`."""
    b_lo, b_hi = tl.load(p_lo + o_t), tl.load(p_hi + o_t)
    i_lo, i_hi = tl.load(p_lo + i_first), tl.load(p_hi + i_last)
    left, right, n = mask_free(i_lo, tl.load(p_lo + i_last), tl.load(p_hi + i_first), i_hi, BN)
    return b_lo, b_hi, i_lo, i_hi, left, right, n


@triton.jit
def _forward_step(
    b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_key, i_hi, p_k, p_v, d_k0, d_k1, d_v0, d_v1, i_row, i_h,
    s_ks, s_vs, scale, DK: tl.constexpr, DV: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr,
    ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """One tile of keys; AGAIN: the second time, without the values that no row reads."""
    o_s = i_key + tl.arange(0, BN)  # [BN]
    m_s = o_s < i_hi
    o_at = o_s.to(tl.int64)
    b_k0, b_k1 = load_keys(p_k, d_k0, d_k1, o_at * s_ks, m_s, i_row + i_key, i_h * DK, DK, MASKED, TMA)
    b_v0, b_v1 = load_keys(p_v, d_v0, d_v1, o_at * s_vs, m_s, i_row + i_key, i_h * DV, DV, MASKED, TMA)
    if AGAIN and TMA:
        b_v0, b_v1 = only(b_v0, m_s), only(b_v1, m_s)
    b_s = dot_rows(b_q0, b_q1, b_k0, b_k1, DK, PREC) * scale  # [BM, BN]
    m_tile = (o_s[None, :] >= b_lo[:, None]) & (o_s[None, :] < b_hi[:, None])
    return add_keys(b_m, b_l, b_o0, b_o1, b_s, m_tile, b_v0, b_v1, DV, MASKED, ONLINE, PREC)


@launched_in_two_forms
@triton.jit(do_not_specialize=["p_lo", "p_hi", "s_range", "T", "H", "B", "N", "S"])
def _forward(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_o, p_lse, p_lo, p_hi, s_range, T, H, B, N, S,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """One program: BM // GP tokens of one KV head."""
    i_h, i_b, i_first, i_last, o_g, o_t, m_row = tile_of(T, H, B, N, G, GP, BM)
    o_q = o_t.to(tl.int64) * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
    b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_q, m_row, DK, True)  # [BM, DK]
    b_lo, b_hi, i_lo, i_hi, left, right, n = keys_of(
        p_lo + i_b * s_range, p_hi + i_b * s_range, o_t, i_first, i_last, BN
    )
    p_kh = p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh
    p_vh = p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh
    i_row = i_b.to(tl.int32) * S

    b_m, b_l, b_o0, b_o1 = begin(BM, DV, ONLINE, False)
    masked = left + n - right
    if not ONLINE:
        masked = tl.where(left < right, masked, 0)  # with so few keys all are computed below
    for MASKED in tl.static_range(2):
        for i in range(0 if MASKED else left, masked if MASKED else right):
            i_key = i_lo + (tl.where(i < left, i, i + right - left) if MASKED else i) * BN
            b_m, b_l, b_o0, b_o1 = _forward_step(
                b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_key, i_hi, p_kh, p_vh,
                d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale, DK, DV, BN, MASKED, ONLINE, PREC, TMA, False,
            )  # fmt: skip
    again = 0
    if not ONLINE:
        again = out_of_range(b_l, m_row & (b_lo < b_hi))
    if TMA:
        again = tl.maximum(again, not_a_number(b_o0, b_o1, DV))
    if TMA or not ONLINE:
        for _ in range(again):
            b_m, b_l, b_o0, b_o1 = begin(BM, DV, ONLINE, True)
            for i in tl.range(0, n, num_stages=1):  # this is rare: in few registers
                b_m, b_l, b_o0, b_o1 = _forward_step(
                    b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_lo + i * BN, i_hi, p_kh, p_vh,
                    d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale, DK, DV, BN, True, True, PREC, TMA, True,
                )  # fmt: skip

    o_row = (i_b * T + o_t) * (H * G) + i_h * G + o_g  # [BM]
    b_f, b_lse = end(b_m, b_l)
    store_pair(p_o, o_row * DV, m_row, b_o0 * b_f[:, None], b_o1 * b_f[:, None], DV, False)
    tl.store(p_lse + o_row, b_lse, mask=m_row)


def ranges_forward(q: Tensor, k: Tensor, v: Tensor, ranges: KeyRanges, scale: float) -> tuple[Tensor, Tensor]:
    """Attention of q [B,T,Hq,Dk] to its ranges of k [B,S,Hkv,Dk], v [B,S,Hkv,Dv].

    Returns:
        o [B,T,Hq,Dv], 0 where a query reads no key; lse fp32 [B,T,Hq], natural logarithm, -inf there.
    """
    q, k, v = rows_last(q), rows_last(k), rows_last(v)
    batch, tokens, heads = q.shape[:3]
    tma = use_tma(k, v)
    o = q.new_empty(batch, tokens, heads, v.shape[-1])
    lse = torch.empty(batch, tokens, heads, dtype=torch.float32, device=q.device)
    sizes = sizes_of(q, k, v, f"{ranges.branch}_forward", tma)
    n = cdiv(tokens, sizes["BM"] // sizes["GP"])
    if o.numel():
        _forward[(n * k.shape[2] * batch,)](
            q, k, v, *key_boxes(k, v, sizes), o, lse, ranges.lo, ranges.hi, ranges.s_query, tokens, k.shape[2], batch,
            n, k.shape[1], *strides_of(q, k, v), scale * LOG2E.value, ONLINE=online(q, tma), **sizes,
        )  # fmt: skip
    return o, lse


# --- what the launches of forward and backward share ---


def sizes_of(q: Tensor, k: Tensor, v: Tensor, kernel: str, tma: bool) -> dict[str, Any]:
    """The compile-time arguments that all three kernels share, with the tile of `kernel`."""
    group = q.shape[2] // k.shape[2]
    gp = pad_group(group)
    return {
        "G": group, "GP": gp, "PREC": dot_precision(q.dtype), "TMA": tma, "DK": q.shape[-1], "DV": v.shape[-1],
        **config_for(kernel + "_tma" if tma else kernel, q, v).launch(gp),
    }  # fmt: skip


def key_boxes(k: Tensor, v: Tensor, sizes: dict[str, Any]) -> tuple[Any, ...]:
    return *key_tiles(k, sizes["BN"], sizes["TMA"]), *key_tiles(v, sizes["BN"], sizes["TMA"])


def strides_of(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
    return (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
