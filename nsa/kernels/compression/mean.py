"""The mean of each compressed token's span (Eq. 7 without a learned phi), and its gradient, for k and v at once.

Means of keys may be turned by their position on the way; a weighted sum, of one tensor, is the same with other factors.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2, rows_last, widths
from nsa.kernels.common.tiles import load_tile, store_tile
from nsa.kernels.ranges.key_ranges import (
    Borders,
    KeyRanges,
    Packing,
    compressed_ranges,
    count_compressed,
    sequence_bounds,
)
from nsa.kernels.rotary import frequencies, halves, sines

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
def _plain_tile(
    p_x, p_weight, p_out, m_i, m_span, s_xt, L: tl.constexpr, LB: tl.constexpr, START: tl.constexpr, W: tl.constexpr,
    D: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    b_sum = _sum_tile(p_x, p_weight, m_span, s_xt, L, LB, START, W, D, WEIGHTED)
    _store_columns(p_out, b_sum, m_i, START, W, D)


@triton.jit
def _rotated_tile(
    p_x, p_frequency, p_out, i_position, m_i, m_span, s_xt, L: tl.constexpr, LB: tl.constexpr, START: tl.constexpr,
    W: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Columns [START, START + W) of both halves, turned by the position."""
    b_a = _sum_tile(p_x, p_x, m_span, s_xt, L, LB, START, W, HALF, False)
    b_b = _sum_tile(p_x + HALF, p_x, m_span, s_xt, L, LB, START, W, HALF, False)
    b_cos, b_sin = sines(i_position + tl.zeros([1], tl.int32), p_frequency, START, W, HALF)
    b_cos, b_sin = tl.reshape(b_cos, [W]), tl.reshape(b_sin, [W])
    _store_columns(p_out, b_a * b_cos - b_b * b_sin, m_i, START, W, HALF)
    _store_columns(p_out + HALF, b_b * b_cos + b_a * b_sin, m_i, START, W, HALF)


@triton.jit
def _spans(
    p_x, p_weight, p_frequency, p_out, p_qlo, p_start, T, S, H, s_xb, s_xt, s_xh,
    L: tl.constexpr, LB: tl.constexpr, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, BM: tl.constexpr,
    WEIGHTED: tl.constexpr, ROTATED: tl.constexpr, HALF: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr,
):  # fmt: skip
    i_h = tl.program_id(0) % H
    i_b = tl.program_id(1).to(tl.int64)
    p_weight += i_h * L
    for i in tl.static_range(BM):
        i_s = tl.program_id(0) // H * BM + i
        m_i = i_s < S
        i_last = tl.load(p_qlo + i_s, mask=m_i, other=T)
        m_span, i_first = i_last < T, i_last - (L - 1)  # packed sequences may have fewer compressed tokens than rows
        p_span = p_x + i_b * s_xb + i_first.to(tl.int64) * s_xt + i_h.to(tl.int64) * s_xh
        p_mean = p_out + ((i_b * S + i_s) * H + i_h) * D
        if ROTATED:
            i_position = i_first - tl.load(p_start + i_first, mask=m_span, other=0)
            for j in tl.static_range(2 if W1 > 0 else 1):
                _rotated_tile(
                    p_span, p_frequency, p_mean, i_position, m_i, m_span, s_xt, L, LB, j * W0, W1 if j else W0, HALF
                )
        else:
            for j in tl.static_range(2 if D1 > 0 else 1):
                _plain_tile(p_span, p_weight, p_mean, m_i, m_span, s_xt, L, LB, j * D0, D1 if j else D0, D, WEIGHTED)


@launched
@triton.jit(do_not_specialize=["T", "S", "H"])
def _forward(
    p_k, p_v, p_weight, p_frequency, p_kout, p_vout, p_qlo, p_start, T, S, H, s_kb, s_kt, s_kh, s_vb, s_vt, s_vh,
    L: tl.constexpr, LB: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BM: tl.constexpr, WEIGHTED: tl.constexpr,
    ROTATED: tl.constexpr, HALF: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr,
):  # fmt: skip
    """BM compressed tokens of one KV head, of k (if ROTATED, turned) or of v; the last token of span i is p_qlo[i]."""
    if tl.program_id(2) == 0:
        _spans(
            p_k, p_weight, p_frequency, p_kout, p_qlo, p_start, T, S, H, s_kb, s_kt, s_kh,
            L, LB, DK, DK0, DK1, BM, WEIGHTED, ROTATED, HALF, W0, W1,
        )  # fmt: skip
    else:
        _spans(
            p_v, p_weight, p_frequency, p_vout, p_qlo, p_start, T, S, H, s_vb, s_vt, s_vh,
            L, LB, DV, DV0, DV1, BM, False, False, HALF, W0, W1,
        )  # fmt: skip


@triton.jit
def _spread_tile(
    p_dout, p_weight, p_a, p_b, p_dx, o_dout, o_dx, o_j, o_i, o_count, m_row, s_i, L: tl.constexpr,
    STRIDE: tl.constexpr, START: tl.constexpr, W: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, ADD: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    b_dx = tl.zeros([BM, W], tl.float32)
    for k in range(L // STRIDE):
        m_i = m_row & (o_i >= k) & (o_i - k < o_count)
        b_dout = load_tile(p_dout, o_dout - k * s_i, m_i, START, W, D, True).to(tl.float32)
        if WEIGHTED:
            b_dout *= tl.load(p_weight + o_j + k * STRIDE, mask=m_i, other=0.0).to(tl.float32)[:, None]
        b_dx += b_dout
    _store_sum(p_a, p_b, p_dx, b_dx if WEIGHTED else b_dx / L, o_dx, m_row, START, W, D, ADD)


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
def _spread_rotated_tile(
    p_dout, p_frequency, p_a, p_b, p_dx, o_dout, o_dx, o_i, o_count, m_row, s_i, L: tl.constexpr, STRIDE: tl.constexpr,
    START: tl.constexpr, W: tl.constexpr, HALF: tl.constexpr, BM: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """As `_spread_tile`, of columns [START, START + W) of both halves, each gradient turned back."""
    b_a = tl.zeros([BM, W], tl.float32)
    b_b = tl.zeros([BM, W], tl.float32)
    for k in range(L // STRIDE):
        m_i = m_row & (o_i >= k) & (o_i - k < o_count)
        b_da = load_tile(p_dout, o_dout - k * s_i, m_i, START, W, HALF, True).to(tl.float32)
        b_db = load_tile(p_dout + HALF, o_dout - k * s_i, m_i, START, W, HALF, True).to(tl.float32)
        b_cos, b_sin = sines((o_i - k) * STRIDE, p_frequency, START, W, HALF)
        b_a += b_da * b_cos + b_db * b_sin
        b_b += b_db * b_cos - b_da * b_sin
    _store_sum(p_a, p_b, p_dx, b_a / L, o_dx, m_row, START, W, HALF, ADD)
    _store_sum(p_a + HALF, p_b + HALF, p_dx + HALF, b_b / L, o_dx, m_row, START, W, HALF, ADD)


@triton.jit
def _spread(
    p_dout, p_weight, p_frequency, p_a, p_b, p_dx, o_token, o_last, o_j, o_i, o_count, m_row, H, i_h, L: tl.constexpr,
    STRIDE: tl.constexpr, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, BM: tl.constexpr, ADD: tl.constexpr,
    WEIGHTED: tl.constexpr, ROTATED: tl.constexpr, HALF: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr,
):  # fmt: skip
    """Rows o_token [BM] of the gradient, from L // STRIDE compressed tokens each, the last of which is row o_last."""
    o_dout, o_dx = (o_last * H + i_h) * D, (o_token * H + i_h) * D
    p_weight += i_h * L
    if ROTATED:
        for j in tl.static_range(2 if W1 > 0 else 1):
            _spread_rotated_tile(
                p_dout, p_frequency, p_a, p_b, p_dx, o_dout, o_dx, o_i, o_count, m_row, H * D, L, STRIDE, j * W0,
                W1 if j else W0, HALF, BM, ADD,
            )  # fmt: skip
    else:
        for j in tl.static_range(2 if D1 > 0 else 1):
            _spread_tile(
                p_dout, p_weight, p_a, p_b, p_dx, o_dout, o_dx, o_j, o_i, o_count, m_row, H * D, L, STRIDE, j * D0,
                D1 if j else D0, D, BM, ADD, WEIGHTED,
            )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["T", "S", "H"])
def _backward(
    p_dkout, p_dvout, p_weight, p_frequency, p_ka, p_va, p_kb, p_vb, p_dk, p_dv, p_lo, p_start, p_end, T, S, H,
    L: tl.constexpr, STRIDE: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BM: tl.constexpr, ADD: tl.constexpr, WEIGHTED: tl.constexpr,
    ROTATED: tl.constexpr, HALF: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr,
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
            L, STRIDE, DK, DK0, DK1, BM, ADD, WEIGHTED, ROTATED, HALF, W0, W1,
        )  # fmt: skip
    else:
        _spread(
            p_dvout, p_weight, p_frequency, p_va, p_vb, p_dv, o_token, o_last, o_j, o_i, o_count, m_row, H, i_h,
            L, STRIDE, DV, DV0, DV1, BM, ADD, False, False, HALF, W0, W1,
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
        dims = widths(DK=k.shape[-1], DV=v.shape[-1])
        fitting = LOADED // (max(dims["DK0"], dims["DV0"]) * k.element_size())
        _forward[(cdiv(count, SPANS) * heads, batch, planes)](
            k, v, *_extras(k, rope, weight), k_cmp, v_cmp, ranges.q_lo,
            ranges.q_lo if rope is None else sequence_bounds(tokens, cu_seqlens, k.device).start,
            tokens, count, heads, *k.stride()[:3], *v.stride()[:3],
            L=config.l, LB=min(next_power_of_2(config.l), fitting), **dims, BM=SPANS, WEIGHTED=weight is not None,
            ROTATED=rope is not None, **halves(k.shape[-1]), num_warps=1,
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
            **widths(DK=dk.shape[-1], DV=dv.shape[-1]), BM=rows, ADD=others is not None, WEIGHTED=weight is not None,
            ROTATED=rope is not None, **halves(dk.shape[-1]), num_warps=4,
        )  # fmt: skip
    return dk, dv


def _extras(k: Tensor, rope: float | None, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights and the frequencies; k stands for what is not there."""
    return k if weight is None else weight.contiguous(), k if rope is None else frequencies(k.shape[-1], rope, k.device)


def ranges_of(k: Tensor, config: NSAConfig, cu_seqlens: Borders) -> KeyRanges:
    """Which compressed tokens of k [B,T,Hkv,D] there are: of borders as they are given exactly these."""
    tokens = k.shape[1]
    if isinstance(cu_seqlens, Packing):
        return cu_seqlens.compressed
    return compressed_ranges(tokens, count_compressed(cu_seqlens, tokens, config), config, cu_seqlens, k.device)
