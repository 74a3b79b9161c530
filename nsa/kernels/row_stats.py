"""What the gradient of attention reads of each row (token, head), in one number of eight bytes.

    upper half  fp32: log2(e) * lse - log2|gate|, so that exp2(logit - it) = |gate| * p; +inf where that is 0 (a row
                that read no key, a gate that is 0).
    lower half  fp32: delta = rowsum(do * o); its last bit says that the gate is negative.

The gradient of k and v loads them anew for the rows of each step, and one load costs it less than three.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common import LOG2E, cdiv, load_tile, split_dim
from nsa.kernels.launch import launched

ROWS = 32
"""Rows of one program."""

NOTHING = tl.constexpr(0x7F800000 << 32)
"""Of a row that does not exist: p = 0, delta = 0."""


@triton.jit
def pack_stats(b_lse, b_delta, b_gate):
    """The numbers [R] of rows with these log-sum-exps (natural), deltas and gates, all fp32 [R]."""
    m_none = (b_lse == float("-inf")) | (b_gate == 0.0)
    b_high = tl.where(m_none, 0.0, b_lse) * LOG2E - tl.log2(tl.where(m_none, 1.0, tl.abs(b_gate)))
    b_high = tl.where(m_none, float("inf"), b_high).to(tl.int32, bitcast=True)
    b_low = (b_delta.to(tl.int32, bitcast=True) & -2) | (b_gate < 0.0).to(tl.int32)
    return (b_high.to(tl.int64) << 32) | b_low.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def load_stats(p_stats, o_row, m_row):
    """Of the rows o_row [R]: what to subtract from logits in log2 units, delta, and the gate's sign, fp32 [R]."""
    b_stats = tl.load(p_stats + o_row, mask=m_row, other=NOTHING)
    b_low = b_stats.to(tl.int32)
    b_lse = (b_stats >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return b_lse, b_low.to(tl.float32, bitcast=True), tl.where((b_low & 1) != 0, -1.0, 1.0)


@launched
@triton.jit(do_not_specialize=["N"])
def _row_stats(p_do, p_o, p_lse, p_stats, N, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, BM: tl.constexpr):
    o_row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    m_row = o_row < N
    b_do = load_tile(p_do, o_row * D, m_row, 0, D0, D, True).to(tl.float32)  # [BM, D0]
    b_delta = tl.sum(b_do * load_tile(p_o, o_row * D, m_row, 0, D0, D, True).to(tl.float32), 1)  # [BM]
    if D1 > 0:
        b_do = load_tile(p_do, o_row * D, m_row, D0, D1, D, True).to(tl.float32)  # [BM, D1]
        b_delta += tl.sum(b_do * load_tile(p_o, o_row * D, m_row, D0, D1, D, True).to(tl.float32), 1)
    b_lse = tl.load(p_lse + o_row, mask=m_row, other=float("-inf"))
    tl.store(p_stats + o_row, pack_stats(b_lse, b_delta, tl.full([BM], 1.0, tl.float32)), mask=m_row)


def row_stats(do: Tensor, o: Tensor, lse: Tensor) -> Tensor:
    """Of an output o [B,T,Hq,Dv] without a gate, its gradient do and its natural lse fp32 [B,T,Hq]: int64 [B,T,Hq]."""
    do, o, lse = do.contiguous(), o.contiguous(), lse.contiguous()
    stats = torch.empty(lse.shape, dtype=torch.int64, device=o.device)
    rows, size = stats.numel(), o.shape[-1]
    if rows:
        first, second = split_dim(size)
        _row_stats[(cdiv(rows, ROWS),)](do, o, lse, stats, rows, D=size, D0=first, D1=second, BM=ROWS, num_warps=4)
    return stats
