"""The mean of each compressed token's span (Eq. 7 without a learned phi), and its gradient, for k and v at once.

Means of keys may be turned by their position on the way; a weighted sum, of one tensor, is the same with other factors.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2, rows_last, split_dim, widths
from nsa.kernels.common.tiles import load_tile, store_tile
from nsa.kernels.ranges.key_ranges import (
    Borders,
    KeyRanges,
    Packing,
    compressed_ranges,
    count_compressed,
    sequence_bounds,
)
from nsa.kernels.rotary import frequencies, sines

SPANS = 2
"""Compressed tokens of one program: few, so that there are many programs, but two find their overlap in the cache."""

LOADED = 8192
"""Bytes that one warp loads at once, all of a usual span: there is nothing else to hide the latency behind."""

ROWS = 32
"""Tokens of one program of the gradient; half as many where sines or weights want registers."""


@triton.jit
def _sum_tile(
    p_x, p_weight, m_span, s_xt, L: tl.constexpr, LB: tl.constexpr, START: tl.constexpr, W: tl.constexpr,
    D: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Columns [START, START + W) of the mean of the L rows from p_x on, or of their WEIGHTED sum; LB rows at once.
    Zeros without a span.
    """
    b_sum = tl.zeros([W], tl.float32)
    for k in range(0, L, LB):
        o_k = k + tl.arange(0, LB)  # [LB]
        b_x = load_tile(p_x, o_k.to(tl.int64) * s_xt, m_span & (o_k < L), START, W, D, True).to(tl.float32)
        if WEIGHTED:
            b_x *= tl.load(p_weight + o_k, mask=o_k < L, other=0.0).to(tl.float32)[:, None]
        b_sum += tl.sum(b_x, 0)
    return b_sum if WEIGHTED else b_sum / L


@triton.jit
def _store_columns(p_out, b_x, m_i, START: tl.constexpr, W: tl.constexpr, D: tl.constexpr):
    o_col = START + tl.arange(0, W)
    tl.store(p_out + o_col, b_x.to(p_out.dtype.element_ty), mask=m_i & (o_col < D))


@triton.jit
def _span_tile(
    p_x, p_weight, p_frequency, p_out, i_position, m_i, m_span, s_xt, L: tl.constexpr, LB: tl.constexpr,
    START: tl.constexpr, W: tl.constexpr, C: tl.constexpr, WEIGHTED: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """Columns [START, START + W) of C; ROTATED: of both halves, turned by the position."""
    b_a = _sum_tile(p_x, p_weight, m_span, s_xt, L, LB, START, W, C, WEIGHTED)
    if ROTATED:
        b_b = _sum_tile(p_x + C, p_weight, m_span, s_xt, L, LB, START, W, C, WEIGHTED)
        b_cos, b_sin = sines(i_position + tl.zeros([1], tl.int32), p_frequency, START, W, C)
        b_cos, b_sin = tl.reshape(b_cos, [W]), tl.reshape(b_sin, [W])
        _store_columns(p_out, b_a * b_cos - b_b * b_sin, m_i, START, W, C)
        _store_columns(p_out + C, b_b * b_cos + b_a * b_sin, m_i, START, W, C)
    else:
        _store_columns(p_out, b_a, m_i, START, W, C)


@triton.jit
def _spans(
    p_x, p_weight, p_frequency, p_out, p_qlo, p_start, T, S, H, s_xb, s_xt, s_xh,
    L: tl.constexpr, LB: tl.constexpr, C: tl.constexpr, C0: tl.constexpr, C1: tl.constexpr, BM: tl.constexpr,
    WEIGHTED: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    i_h = tl.program_id(0) % H
    i_b = tl.program_id(1).to(tl.int64)
    p_weight += i_h * L
    D: tl.constexpr = 2 * C if ROTATED else C
    for i in tl.static_range(BM):
        i_s = tl.program_id(0) // H * BM + i
        m_i = i_s < S
        i_last = tl.load(p_qlo + i_s, mask=m_i, other=T)
        m_span, i_first = i_last < T, i_last - (L - 1)  # packed sequences may have fewer compressed tokens than rows
        p_span = p_x + i_b * s_xb + i_first.to(tl.int64) * s_xt + i_h.to(tl.int64) * s_xh
        p_mean = p_out + ((i_b * S + i_s) * H + i_h) * D
        i_position = i_first
        if ROTATED:
            i_position = i_first - tl.load(p_start + i_first, mask=m_span, other=0)
        for j in tl.static_range(2 if C1 > 0 else 1):
            _span_tile(
                p_span, p_weight, p_frequency, p_mean, i_position, m_i, m_span, s_xt, L, LB, j * C0, C1 if j else C0, C,
                WEIGHTED, ROTATED,
            )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["T", "S", "H"])
def _forward(
    p_k, p_v, p_weight, p_frequency, p_kout, p_vout, p_qlo, p_start, T, S, H, s_kb, s_kt, s_kh, s_vb, s_vt, s_vh,
    L: tl.constexpr, LB: tl.constexpr,
    CK: tl.constexpr, CK0: tl.constexpr, CK1: tl.constexpr, CV: tl.constexpr, CV0: tl.constexpr, CV1: tl.constexpr,
    BM: tl.constexpr, WEIGHTED: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """BM compressed tokens of one KV head, of k (if ROTATED, turned) or of v; the last token of span i is p_qlo[i].

    CK and CV columns are held at once: those of a head or, of what is turned, of half a head.
    """
    if tl.program_id(2) == 0:
        _spans(
            p_k, p_weight, p_frequency, p_kout, p_qlo, p_start, T, S, H, s_kb, s_kt, s_kh,
            L, LB, CK, CK0, CK1, BM, WEIGHTED, ROTATED,
        )  # fmt: skip
    else:
        _spans(
            p_v, p_weight, p_frequency, p_vout, p_qlo, p_start, T, S, H, s_vb, s_vt, s_vh,
            L, LB, CV, CV0, CV1, BM, False, False,
        )  # fmt: skip


@triton.jit
def _store_sum(
    p_a, p_b, p_dx, b_dx, o_dx, m_row, START: tl.constexpr, W: tl.constexpr, D: tl.constexpr, ADD: tl.constexpr
):
    """Write b_dx, or its sum with what is at p_a and p_b, whose columns are those of p_dx."""
    if ADD:
        b_dx += load_tile(p_a, o_dx, m_row, START, W, D, True).to(tl.float32)
        b_dx += load_tile(p_b, o_dx, m_row, START, W, D, True).to(tl.float32)
    store_tile(p_dx, o_dx, m_row, b_dx, START, W, D, False)


@triton.jit
def _spread_tile(
    p_dout, p_weight, p_frequency, p_a, p_b, p_dx, o_dout, o_dx, o_j, o_i, o_count, m_row, s_i, L: tl.constexpr,
    STRIDE: tl.constexpr, START: tl.constexpr, W: tl.constexpr, C: tl.constexpr, BM: tl.constexpr, ADD: tl.constexpr,
    WEIGHTED: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """Columns [START, START + W) of C; ROTATED: of both halves, each gradient turned back."""
    b_a = tl.zeros([BM, W], tl.float32)
    b_b = tl.zeros([BM, W], tl.float32)
    for k in range(L // STRIDE):
        m_i = m_row & (o_i >= k) & (o_i - k < o_count)
        b_da = load_tile(p_dout, o_dout - k * s_i, m_i, START, W, C, True).to(tl.float32)
        if WEIGHTED:
            b_da *= tl.load(p_weight + o_j + k * STRIDE, mask=m_i, other=0.0).to(tl.float32)[:, None]
        if ROTATED:
            b_db = load_tile(p_dout + C, o_dout - k * s_i, m_i, START, W, C, True).to(tl.float32)
            b_cos, b_sin = sines((o_i - k) * STRIDE, p_frequency, START, W, C)
            b_a += b_da * b_cos + b_db * b_sin
            b_b += b_db * b_cos - b_da * b_sin
        else:
            b_a += b_da
    _store_sum(p_a, p_b, p_dx, b_a if WEIGHTED else b_a / L, o_dx, m_row, START, W, C, ADD)
    if ROTATED:
        _store_sum(p_a + C, p_b + C, p_dx + C, b_b / L, o_dx, m_row, START, W, C, ADD)


@triton.jit
def _spread(
    p_dout, p_weight, p_frequency, p_a, p_b, p_dx, o_token, o_last, o_j, o_i, o_count, m_row, H, i_h, L: tl.constexpr,
    STRIDE: tl.constexpr, C: tl.constexpr, C0: tl.constexpr, C1: tl.constexpr, BM: tl.constexpr, ADD: tl.constexpr,
    WEIGHTED: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """Rows o_token [BM] of the gradient, from L // STRIDE compressed tokens each, the last of which is row o_last."""
    D: tl.constexpr = 2 * C if ROTATED else C
    o_dout, o_dx = (o_last * H + i_h) * D, (o_token * H + i_h) * D
    for j in tl.static_range(2 if C1 > 0 else 1):
        _spread_tile(
            p_dout, p_weight + i_h * L, p_frequency, p_a, p_b, p_dx, o_dout, o_dx, o_j, o_i, o_count, m_row, H * D, L,
            STRIDE, j * C0, C1 if j else C0, C, BM, ADD, WEIGHTED, ROTATED,
        )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["T", "S", "H"])
def _backward(
    p_dkout, p_dvout, p_weight, p_frequency, p_ka, p_va, p_kb, p_vb, p_dk, p_dv, p_lo, p_start, p_end, T, S, H,
    L: tl.constexpr, STRIDE: tl.constexpr,
    CK: tl.constexpr, CK0: tl.constexpr, CK1: tl.constexpr, CV: tl.constexpr, CV0: tl.constexpr, CV1: tl.constexpr,
    BM: tl.constexpr, ADD: tl.constexpr, WEIGHTED: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """BM tokens of one KV head, of k or of v: each is in the spans of the last L // STRIDE compressed tokens that
    begin up to it.
    """
    i_h = tl.program_id(0) % H
    i_b = tl.program_id(1).to(tl.int64)
    o_t = tl.program_id(0) // H * BM + tl.arange(0, BM)  # [BM]
    m_row = o_t < T
    o_start = tl.load(p_start + o_t, mask=m_row, other=0)
    o_count = tl.maximum(tl.load(p_end + o_t, mask=m_row, other=0) - o_start - L + STRIDE, 0) // STRIDE
    o_i = (o_t - o_start) // STRIDE  # the last span that holds the token, in its own sequence
    o_j = (o_t - o_start) % STRIDE  # where it stands in that
    o_last = i_b * S + tl.load(p_lo + o_t, mask=m_row, other=0) + o_i
    o_token = i_b * T + o_t
    if tl.program_id(2) == 0:
        _spread(
            p_dkout, p_weight, p_frequency, p_ka, p_kb, p_dk, o_token, o_last, o_j, o_i, o_count, m_row, H, i_h,
            L, STRIDE, CK, CK0, CK1, BM, ADD, WEIGHTED, ROTATED,
        )  # fmt: skip
    else:
        _spread(
            p_dvout, p_weight, p_frequency, p_va, p_vb, p_dv, o_token, o_last, o_j, o_i, o_count, m_row, H, i_h,
            L, STRIDE, CV, CV0, CV1, BM, ADD, False, False,
        )  # fmt: skip


Pair = tuple[Tensor, Tensor]


def forward(
    k: Tensor, v: Tensor | None, config: NSAConfig, cu_seqlens: Borders, *, rope: float | None = None,
    weight: Tensor | None = None,
) -> Pair:  # fmt: skip
    """Means of k [B,T,Hkv,Dk] and v [B,T,Hkv,Dv]: [B,S,Hkv,Dk], [B,S,Hkv,Dv].

    Args:
        k, v: rows of any strides; without v, the second result is the first.
        config: the sizes.
        cu_seqlens: borders of packed sequences.
        rope: base of the rotary embedding by which each mean of k is turned at the first position of its span.
        weight: [Hkv,l], of k's weighted sums instead of its means; without v and rope.
    """
    ranges = ranges_of(k, config, cu_seqlens)
    k = rows_last(k)
    v, planes = (k, 1) if v is None else (rows_last(v), 2)
    batch, tokens, heads, _ = k.shape
    count = ranges.q_lo.numel()
    k_cmp = k.new_empty(batch, count, heads, k.shape[-1])
    v_cmp = v.new_empty(batch, count, heads, v.shape[-1]) if planes == 2 else k_cmp
    if k_cmp.numel():
        fitting = LOADED // (split_dim(max(k.shape[-1], v.shape[-1]))[0] * k.element_size())
        _forward[(cdiv(count, SPANS) * heads, batch, planes)](
            k, v, *_extras(k, rope, weight), k_cmp, v_cmp, ranges.q_lo,
            ranges.q_lo if rope is None else sequence_bounds(tokens, cu_seqlens, k.device).start,
            tokens, count, heads, *k.stride()[:3], *v.stride()[:3],
            L=config.l, LB=min(next_power_of_2(config.l), fitting), **_columns(k, v, rope), BM=SPANS,
            WEIGHTED=weight is not None, ROTATED=rope is not None, num_warps=1,
        )  # fmt: skip
    return k_cmp, v_cmp


def backward(
    dk_cmp: Tensor, dv_cmp: Tensor | None, tokens: int, config: NSAConfig, cu_seqlens: Borders,
    others: tuple[Pair, Pair] | None = None, *, rope: float | None = None, weight: Tensor | None = None,
) -> Pair:  # fmt: skip
    """Gradients of k [B,T,Hkv,Dk] and v [B,T,Hkv,Dv] from those of their means [B,S,Hkv,D*]; see `forward`.

    others: two more gradients of the same k and v, contiguous; the sum of all three is written into the first.
    """
    dk_cmp = dk_cmp.contiguous()
    dv_cmp, planes = (dk_cmp, 1) if dv_cmp is None else (dv_cmp.contiguous(), 2)
    batch, count, heads, _ = dk_cmp.shape
    if others is None:
        dk = dk_cmp.new_empty(batch, tokens, heads, dk_cmp.shape[-1])
        dv = dv_cmp.new_empty(batch, tokens, heads, dv_cmp.shape[-1]) if planes == 2 else dk
    else:
        dk, dv = others[0]
    if dk.numel():
        ranges = compressed_ranges(tokens, count, config, cu_seqlens, dk.device)
        owner = sequence_bounds(tokens, cu_seqlens, dk.device)
        rows = ROWS if rope is None and weight is None else ROWS // 2
        _backward[(cdiv(tokens, rows) * heads, batch, planes)](
            dk_cmp, dv_cmp, *_extras(dk, rope, weight), dk, dv, *(others[1] if others else (dk, dv)), dk, dv, ranges.lo,
            owner.start, owner.end, tokens, count, heads, L=config.l, STRIDE=config.d,
            **_columns(dk, dv, rope), BM=rows, ADD=others is not None, WEIGHTED=weight is not None,
            ROTATED=rope is not None, num_warps=4,
        )  # fmt: skip
    return dk, dv


def _columns(k: Tensor, v: Tensor, rope: float | None) -> dict[str, int]:
    """The compile-time arguments that name the columns held at once: of keys that are turned, those of a half."""
    return widths(CK=k.shape[-1] // (1 if rope is None else 2), CV=v.shape[-1])


def _extras(k: Tensor, rope: float | None, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights and the frequencies; k stands for what is not there."""
    return k if weight is None else weight.contiguous(), k if rope is None else frequencies(k.shape[-1], rope, k.device)


def ranges_of(k: Tensor, config: NSAConfig, cu_seqlens: Borders) -> KeyRanges:
    """Which compressed tokens of k [B,T,Hkv,D] there are: of borders as they are given exactly these."""
    tokens = k.shape[1]
    if isinstance(cu_seqlens, Packing):
        return cu_seqlens.compressed
    return compressed_ranges(tokens, count_compressed(cu_seqlens, tokens, config), config, cu_seqlens, k.device)
