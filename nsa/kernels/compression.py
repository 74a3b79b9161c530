"""The mean of each compressed token's span (Eq. 7 without a learned phi), and its gradient."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsa.config import NSAConfig
from nsa.kernels.common import cdiv, load_tile, rows_last, split_dim, store_tile
from nsa.kernels.geometry import Spans, compressed_spans, packed_compressed, segments

ROWS = 32
"""Compressed tokens, or tokens, of one program."""


@triton.jit
def _mean_tile(p_x, p_out, o_x, o_out, m_row, s_xt, L: tl.constexpr, START: tl.constexpr, W: tl.constexpr,
               D: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    b_sum = tl.zeros([BM, W], tl.float32)
    for k in range(L):
        b_sum += load_tile(p_x, o_x + k * s_xt, m_row, START, W, D, True).to(tl.float32)
    store_tile(p_out, o_out, m_row, b_sum / L, START, W, D, False)


@triton.jit(do_not_specialize=["S", "H"])
def _forward(
    p_x, p_out, p_qlo, S, H, s_xb, s_xt, s_xh,
    L: tl.constexpr, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """BM compressed tokens of one KV head; the last token of span i is p_qlo[i]."""
    i_h = tl.program_id(0) % H
    i_b = tl.program_id(1).to(tl.int64)
    o_i = tl.program_id(0) // H * BM + tl.arange(0, BM)  # [BM]
    m_row = o_i < S
    o_first = tl.load(p_qlo + o_i, mask=m_row, other=L - 1) - (L - 1)
    o_x = i_b * s_xb + o_first.to(tl.int64) * s_xt + i_h * s_xh
    o_out = ((i_b * S + o_i) * H + i_h) * D
    _mean_tile(p_x, p_out, o_x, o_out, m_row, s_xt, L, 0, D0, D, BM)
    if D1 > 0:
        _mean_tile(p_x, p_out, o_x, o_out, m_row, s_xt, L, D0, D1, D, BM)


@triton.jit
def _spread_tile(p_dout, p_dx, o_dout, o_dx, o_i, o_count, m_row, s_i, L: tl.constexpr, OVERLAP: tl.constexpr,
                 START: tl.constexpr, W: tl.constexpr, D: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    b_dx = tl.zeros([BM, W], tl.float32)
    for k in range(OVERLAP):
        m_i = m_row & (o_i >= k) & (o_i - k < o_count)
        b_dx += load_tile(p_dout, o_dout - k * s_i, m_i, START, W, D, True).to(tl.float32)
    store_tile(p_dx, o_dx, m_row, b_dx / L, START, W, D, False)


@triton.jit(do_not_specialize=["T", "S", "H"])
def _backward(
    p_dout, p_dx, p_lo, p_start, p_end, T, S, H,
    L: tl.constexpr, STRIDE: tl.constexpr, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """BM tokens of one KV head: each is in the spans of the last L // STRIDE compressed tokens that begin up to it."""
    i_h = tl.program_id(0) % H
    i_b = tl.program_id(1).to(tl.int64)
    o_t = tl.program_id(0) // H * BM + tl.arange(0, BM)  # [BM]
    m_row = o_t < T
    o_start = tl.load(p_start + o_t, mask=m_row, other=0)
    o_count = tl.maximum(tl.load(p_end + o_t, mask=m_row, other=0) - o_start - L + STRIDE, 0) // STRIDE
    o_i = (o_t - o_start) // STRIDE  # the last span that holds the token, in its own sequence
    s_i = H * D
    o_dout = (i_b * S + tl.load(p_lo + o_t, mask=m_row, other=0) + o_i) * s_i + i_h * D
    o_dx = ((i_b * T + o_t) * H + i_h) * D
    _spread_tile(p_dout, p_dx, o_dout, o_dx, o_i, o_count, m_row, s_i, L, L // STRIDE, 0, D0, D, BM)
    if D1 > 0:
        _spread_tile(p_dout, p_dx, o_dout, o_dx, o_i, o_count, m_row, s_i, L, L // STRIDE, D0, D1, D, BM)


def forward(x: Tensor, config: NSAConfig, spans: Spans) -> Tensor:
    """Means of x [B,T,Hkv,D]: [B,S,Hkv,D]."""
    x = rows_last(x)
    batch, _, heads, size = x.shape
    keys = spans.q_lo.numel()
    out = x.new_empty(batch, keys, heads, size)
    if out.numel():
        first, second = split_dim(size)
        _forward[(cdiv(keys, ROWS) * heads, batch)](
            x, out, spans.q_lo, keys, heads, *x.stride()[:3],
            L=config.l, D=size, D0=first, D1=second, BM=ROWS, num_warps=4,
        )  # fmt: skip
    return out


def backward(dout: Tensor, tokens: int, config: NSAConfig, spans: Spans, cu_seqlens: Tensor | None) -> Tensor:
    """Gradient of x [B,T,Hkv,D] from that of its means [B,S,Hkv,D]."""
    dout = dout.contiguous()
    batch, keys, heads, size = dout.shape
    dx = dout.new_empty(batch, tokens, heads, size)
    owner = segments(tokens, cu_seqlens, dout.device)
    if dx.numel():
        first, second = split_dim(size)
        _backward[(cdiv(tokens, ROWS) * heads, batch)](
            dout, dx, spans.lo, owner.start, owner.end, tokens, keys, heads,
            L=config.l, STRIDE=config.d, D=size, D0=first, D1=second, BM=ROWS, num_warps=4,
        )  # fmt: skip
    return dx


class MeanCompression(torch.autograd.Function):
    """Means of x [B,T,Hkv,D] over the spans: [B,Tc,Hkv,D]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, config: NSAConfig, cu_seqlens: Tensor | None) -> Tensor:
        ctx.tokens, ctx.config = x.shape[1], config
        ctx.spans = compressed_spans(
            ctx.tokens, packed_compressed(cu_seqlens, ctx.tokens, config), config, cu_seqlens, x.device
        )
        ctx.save_for_backward(cu_seqlens)
        return forward(x, config, ctx.spans)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        return backward(dout, ctx.tokens, ctx.config, ctx.spans, *ctx.saved_tensors), None, None
