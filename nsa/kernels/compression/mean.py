"""The mean of each compressed token's span (Eq. 7 without a learned phi), and its gradient, for k and v at once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nsa.blocks import num_compressed
from nsa.config import NSAConfig
from nsa.kernels.common.launch import launched
from nsa.kernels.common.tiles import cdiv, load_tile, next_power_of_2, rows_last, store_tile, widths
from nsa.kernels.ranges.key_ranges import Borders, KeyRanges, compressed_ranges, sequence_bounds

SPANS = 2
"""Compressed tokens of one program: few, so that there are many programs, but two find their overlap in the cache."""

LOADED = 8192
"""Bytes that one warp loads at once, all of a usual span: there is nothing else to hide the latency behind."""

ROWS = 32
"""Tokens of one program of the gradient."""


@triton.jit
def _mean_tile(p_x, p_out, m_i, m_span, s_xt, L: tl.constexpr, LB: tl.constexpr, START: tl.constexpr, W: tl.constexpr,
               D: tl.constexpr):  # fmt: skip
    """Columns [START, START + W) of the mean of the L rows from p_x on, LB rows at once; without a span zeros."""
    b_sum = tl.zeros([W], tl.float32)
    for k in range(0, L, LB):
        o_k = k + tl.arange(0, LB)  # [LB]
        b_sum += tl.sum(
            load_tile(p_x, o_k.to(tl.int64) * s_xt, m_span & (o_k < L), START, W, D, True).to(tl.float32), 0
        )
    o_col = START + tl.arange(0, W)
    tl.store(p_out + o_col, (b_sum / L).to(p_out.dtype.element_ty), mask=m_i & (o_col < D))


@triton.jit
def _means(
    p_x, p_out, p_qlo, T, S, H, s_xb, s_xt, s_xh,
    L: tl.constexpr, LB: tl.constexpr, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    i_h = tl.program_id(0) % H
    i_b = tl.program_id(1).to(tl.int64)
    for i in tl.static_range(BM):
        i_s = tl.program_id(0) // H * BM + i
        m_i = i_s < S
        i_last = tl.load(p_qlo + i_s, mask=m_i, other=T)
        m_span, i_first = i_last < T, i_last - (L - 1)  # packed sequences may have fewer compressed tokens than rows
        p_span = p_x + i_b * s_xb + i_first.to(tl.int64) * s_xt + i_h.to(tl.int64) * s_xh
        p_mean = p_out + ((i_b * S + i_s) * H + i_h) * D
        _mean_tile(p_span, p_mean, m_i, m_span, s_xt, L, LB, 0, D0, D)
        if D1 > 0:
            _mean_tile(p_span, p_mean, m_i, m_span, s_xt, L, LB, D0, D1, D)


@launched
@triton.jit(do_not_specialize=["T", "S", "H"])
def _forward(
    p_k, p_v, p_kout, p_vout, p_qlo, T, S, H, s_kb, s_kt, s_kh, s_vb, s_vt, s_vh, L: tl.constexpr, LB: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BM: tl.constexpr,
):  # fmt: skip
    """BM compressed tokens of one KV head, of k or of v; the last token of span i is p_qlo[i]."""
    if tl.program_id(2) == 0:
        _means(p_k, p_kout, p_qlo, T, S, H, s_kb, s_kt, s_kh, L, LB, DK, DK0, DK1, BM)
    else:
        _means(p_v, p_vout, p_qlo, T, S, H, s_vb, s_vt, s_vh, L, LB, DV, DV0, DV1, BM)


@triton.jit
def _spread_tile(
    p_dout, p_a, p_b, p_dx, o_dout, o_dx, o_i, o_count, m_row, s_i, L: tl.constexpr, OVERLAP: tl.constexpr,
    START: tl.constexpr, W: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    b_dx = tl.zeros([BM, W], tl.float32)
    for k in range(OVERLAP):
        m_i = m_row & (o_i >= k) & (o_i - k < o_count)
        b_dx += load_tile(p_dout, o_dout - k * s_i, m_i, START, W, D, True).to(tl.float32)
    b_dx = b_dx / L
    if ADD:
        b_dx += load_tile(p_a, o_dx, m_row, START, W, D, True).to(tl.float32)
        b_dx += load_tile(p_b, o_dx, m_row, START, W, D, True).to(tl.float32)
    store_tile(p_dx, o_dx, m_row, b_dx, START, W, D, False)


@triton.jit
def _spread(
    p_dout, p_a, p_b, p_dx, o_token, o_last, o_i, o_count, m_row, H, i_h, L: tl.constexpr, OVERLAP: tl.constexpr,
    D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, BM: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Rows o_token [BM] of the gradient, from OVERLAP compressed tokens each, the last of which is row o_last."""
    o_dout, o_dx = (o_last * H + i_h) * D, (o_token * H + i_h) * D
    _spread_tile(p_dout, p_a, p_b, p_dx, o_dout, o_dx, o_i, o_count, m_row, H * D, L, OVERLAP, 0, D0, D, BM, ADD)
    if D1 > 0:
        _spread_tile(p_dout, p_a, p_b, p_dx, o_dout, o_dx, o_i, o_count, m_row, H * D, L, OVERLAP, D0, D1, D, BM, ADD)


@launched
@triton.jit(do_not_specialize=["T", "S", "H"])
def _backward(
    p_dkout, p_dvout, p_ka, p_va, p_kb, p_vb, p_dk, p_dv, p_lo, p_start, p_end, T, S, H,
    L: tl.constexpr, STRIDE: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    BM: tl.constexpr, ADD: tl.constexpr,
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
    o_last = i_b * S + tl.load(p_lo + o_t, mask=m_row, other=0) + o_i
    o_token = i_b * T + o_t
    OVERLAP: tl.constexpr = L // STRIDE
    if tl.program_id(2) == 0:
        _spread(
            p_dkout, p_ka, p_kb, p_dk, o_token, o_last, o_i, o_count, m_row, H, i_h, L, OVERLAP, DK, DK0, DK1, BM, ADD
        )
    else:
        _spread(
            p_dvout, p_va, p_vb, p_dv, o_token, o_last, o_i, o_count, m_row, H, i_h, L, OVERLAP, DV, DV0, DV1, BM, ADD
        )


def forward(k: Tensor, v: Tensor, config: NSAConfig, ranges: KeyRanges) -> tuple[Tensor, Tensor]:
    """Means of k [B,T,Hkv,Dk] and v [B,T,Hkv,Dv]: [B,S,Hkv,Dk], [B,S,Hkv,Dv]."""
    k, v = rows_last(k), rows_last(v)
    batch, tokens, heads, _ = k.shape
    count = ranges.q_lo.numel()
    k_cmp, v_cmp = k.new_empty(batch, count, heads, k.shape[-1]), v.new_empty(batch, count, heads, v.shape[-1])
    if k_cmp.numel():
        dims = widths(k.shape[-1], v.shape[-1])
        fitting = LOADED // (max(dims["DK0"], dims["DV0"]) * k.element_size())
        _forward[(cdiv(count, SPANS) * heads, batch, 2)](
            k, v, k_cmp, v_cmp, ranges.q_lo, tokens, count, heads, *k.stride()[:3], *v.stride()[:3],
            L=config.l, LB=min(next_power_of_2(config.l), fitting), **dims, BM=SPANS, num_warps=1,
        )  # fmt: skip
    return k_cmp, v_cmp


Pair = tuple[Tensor, Tensor]


def backward(
    dk_cmp: Tensor,
    dv_cmp: Tensor,
    tokens: int,
    config: NSAConfig,
    ranges: KeyRanges,
    cu_seqlens: Borders,
    others: tuple[Pair, Pair] | None = None,
) -> Pair:
    """Gradients of k [B,T,Hkv,Dk] and v [B,T,Hkv,Dv] from those of their means [B,S,Hkv,D*].

    others: two more gradients of the same k and v, contiguous; the sum of all three is written into the first.
    """
    dk_cmp, dv_cmp = dk_cmp.contiguous(), dv_cmp.contiguous()
    batch, count, heads, _ = dk_cmp.shape
    if others is None:
        dk, dv = (x.new_empty(batch, tokens, heads, x.shape[-1]) for x in (dk_cmp, dv_cmp))
    else:
        dk, dv = others[0]
    owner = sequence_bounds(tokens, cu_seqlens, dk.device)
    if dk.numel():
        _backward[(cdiv(tokens, ROWS) * heads, batch, 2)](
            dk_cmp, dv_cmp, dk, dv, *(others[1] if others else (dk, dv)), dk, dv, ranges.lo, owner.start, owner.end,
            tokens, count, heads, L=config.l, STRIDE=config.d, **widths(dk.shape[-1], dv.shape[-1]), BM=ROWS,
            ADD=others is not None, num_warps=4,
        )  # fmt: skip
    return dk, dv


def ranges_of(k: Tensor, config: NSAConfig, cu_seqlens: Borders) -> KeyRanges:
    """Which compressed tokens of k [B,T,Hkv,D] there are."""
    tokens = k.shape[1]
    return compressed_ranges(tokens, num_compressed(tokens, config), config, cu_seqlens, k.device)
