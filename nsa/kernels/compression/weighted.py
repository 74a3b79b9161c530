"""Means and learned weighted sums of spans as an operation of its own, differentiable in the weights too."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2, rows_last, widths
from nsa.kernels.common.tiles import load_tile
from nsa.kernels.compression import mean
from nsa.kernels.recorded import Differentiable, Tensors

FEWEST_SPANS = 16
MOST_SPLITS = 64
"""Programs that share the spans of a head in the gradient of its weights: of FEWEST_SPANS at least."""

ROWS = 32
"""Weights of one program."""


@triton.jit
def _products(p_x, p_dout, o_x, m_row, START: tl.constexpr, W: tl.constexpr, D: tl.constexpr):
    """Products [R] of rows of x with one row of the gradient, over columns [START, START + W)."""
    o_col = START + tl.arange(0, W)
    b_dout = tl.load(p_dout + o_col, mask=o_col < D, other=0.0).to(tl.float32)
    return tl.sum(load_tile(p_x, o_x, m_row, START, W, D, True).to(tl.float32) * b_dout[None, :], 1)


@launched
@triton.jit(do_not_specialize=["S", "H", "EACH"])
def _weight_gradient(
    p_x, p_dout, p_out, p_qlo, S, H, EACH, s_xb, s_xt, s_xh,
    L: tl.constexpr, LB: tl.constexpr, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr,
):  # fmt: skip
    """The share of EACH spans in the gradient of LB weights of a head."""
    CHUNKS: tl.constexpr = (L + LB - 1) // LB
    i_split = tl.program_id(0) // CHUNKS
    i_h = tl.program_id(1)
    i_b = tl.program_id(2).to(tl.int64)
    o_j = tl.program_id(0) % CHUNKS * LB + tl.arange(0, LB)  # [LB]
    m_j = o_j < L
    p_x += i_b * s_xb + i_h.to(tl.int64) * s_xh
    b_sum = tl.zeros([LB], tl.float32)
    for i_s in range(i_split * EACH, tl.minimum((i_split + 1) * EACH, S)):
        o_x = (tl.load(p_qlo + i_s) - (L - 1) + o_j).to(tl.int64) * s_xt
        p_row = p_dout + ((i_b * S + i_s) * H + i_h) * D
        for j in tl.static_range(2 if D1 > 0 else 1):
            b_sum += _products(p_x, p_row, o_x, m_j, j * D0, D1 if j else D0, D)
    i_row = (i_b * (tl.num_programs(0) // CHUNKS) + i_split) * H + i_h
    tl.store(p_out + i_row * L + o_j, b_sum, mask=m_j)


def weight_gradient(x: Tensor, dout: Tensor, config: NSAConfig, cu_seqlens: Tensor | None) -> Tensor:
    """fp32 [Hkv,l], of x [B,T,Hkv,D] and the gradient [B,S,Hkv,D] of its weighted sums; partial sums in fixed order."""
    x, dout = rows_last(x), dout.contiguous()
    batch, count, heads, dim = dout.shape
    if not dout.numel():
        return x.new_zeros(heads, config.l, dtype=torch.float32)
    each = max(FEWEST_SPANS, cdiv(count, MOST_SPLITS))
    rows = min(ROWS, next_power_of_2(config.l))
    splits = cdiv(count, each)
    parts = x.new_empty(batch * splits, heads, config.l, dtype=torch.float32)
    _weight_gradient[(splits * cdiv(config.l, rows), heads, batch)](
        x, dout, parts, mean.ranges_of(x, config, cu_seqlens).q_lo, count, heads, each, *x.stride()[:3],
        L=config.l, LB=rows, **widths(D=dim), num_warps=4,
    )  # fmt: skip
    return parts.sum(0)


def _forward(
    x: Tensor, weight: Tensor | None, cu_seqlens: Tensor | None, config: NSAConfig, tokens: int
) -> tuple[Tensor]:
    return (mean.forward(x, None, config, cu_seqlens, weight=weight)[0],)


def _backward(
    dout: Tensor, x: Tensor | None, weight: Tensor | None, cu_seqlens: Tensor | None, config: NSAConfig, tokens: int,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    dx = dweight = None
    if wanted[0]:
        dx, _ = mean.backward(dout, None, tokens, config, cu_seqlens, weight=weight)
    if wanted[1] and x is not None and weight is not None:
        dweight = weight_gradient(x, dout, config, cu_seqlens).to(weight.dtype)
    return dx, dweight, None


def _kept(tensors: Tensors, results: Tensors) -> Tensors:
    x, weight, cu_seqlens = tensors
    return None if weight is None else x, weight, cu_seqlens


span_sums = Differentiable("compress", _forward, _backward, _kept, selective=True)
"""Means of spans of x, or their sums under weights [Hkv,l]; and the number of tokens."""
