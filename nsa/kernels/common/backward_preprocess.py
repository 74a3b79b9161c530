"""What the gradient of attention reads of each row (token, head), in one number of eight bytes.

    upper half  fp32: log2(e) * lse - log2|gate|, so that exp2(logit - it) = |gate| * p; +inf where that is 0 (a row
                that read no key, a gate that is 0).
    lower half  fp32: delta = rowsum(do * o); its last bit says that the gate is negative.

The gradient of k and v loads them anew for the rows of each step, and one load costs it less than three.

The fused gradient (`ranges.fused`) has TMA load them, which wants what a tile needs in one piece that begins at a
multiple of 16 bytes: fp32 [2,B,Hkv,TP,GP], the upper halves, then the lower ones, the GP rows of a token side by
side, and so many tokens that TP * GP is a multiple of 4. Rows that do not exist have p = 0 and delta = 0.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, pad_group
from nsa.kernels.common.tiles import LOG2E, load_pair

ROWS = 32
"""Rows of one program."""

NUMBERS_ALIGNED = 4
"""TMA begins at multiples of so many fp32 numbers."""

NOTHING = tl.constexpr(0x7F800000 << 32)
"""Of a row that does not exist: p = 0, delta = 0."""


@triton.jit
def store_stats(
    p_stats, o_row, m_row, b_lse, b_delta, b_gate, T, H, S, N,
    G: tl.constexpr, GP: tl.constexpr, BY_HEAD: tl.constexpr,
):  # fmt: skip
    """Store the numbers of rows o_row [R] = (entry * T + token) * H * G + head with these log-sum-exps (natural),
    deltas and gates, all fp32 [R]; BY_HEAD in two parts of N numbers, S for each of H KV heads.
    """
    m_none = (b_lse == float("-inf")) | (b_gate == 0.0)
    b_high = tl.where(m_none, 0.0, b_lse) * LOG2E - tl.log2(tl.where(m_none, 1.0, tl.abs(b_gate)))
    b_high = tl.where(m_none, float("inf"), b_high)
    b_low = (b_delta.to(tl.int32, bitcast=True) & -2) | (b_gate < 0.0).to(tl.int32)
    if BY_HEAD:
        o_head, o_token = o_row % (H * G), o_row // (H * G)
        o_at = (o_token // T * H + o_head // G) * S + o_token % T * GP + o_head % G
        tl.store(p_stats + o_at, b_high, mask=m_row)
        tl.store(p_stats + N + o_at, b_low.to(tl.float32, bitcast=True), mask=m_row)
    else:
        b_stats = (b_high.to(tl.int32, bitcast=True).to(tl.int64) << 32) | b_low.to(tl.uint32, bitcast=True).to(
            tl.int64
        )
        tl.store(p_stats + o_row, b_stats, mask=m_row)


@triton.jit
def load_stats(p_stats, o_row, m_row):
    """Of the rows o_row [R]: what to subtract from logits in log2 units, delta, and the gate's sign, fp32 [R]."""
    b_stats = tl.load(p_stats + o_row, mask=m_row, other=NOTHING)
    b_low = b_stats.to(tl.int32)
    b_lse = (b_stats >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return b_lse, b_low.to(tl.float32, bitcast=True), tl.where((b_low & 1) != 0, -1.0, 1.0)


@launched
@triton.jit(do_not_specialize=["R", "T", "H", "S", "N"])
def _backward_preprocess(
    p_do, p_o, p_lse, p_stats, R, T, H, S, N, G: tl.constexpr, GP: tl.constexpr, BY_HEAD: tl.constexpr,
    D: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    o_row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    m_row = o_row < R
    b_do0, b_do1 = load_pair(p_do, o_row * D, m_row, D, True)
    b_o0, b_o1 = load_pair(p_o, o_row * D, m_row, D, True)
    b_delta = tl.sum(b_do0.to(tl.float32) * b_o0.to(tl.float32), 1)  # [BM]
    if b_o0.shape[1] < D:
        b_delta += tl.sum(b_do1.to(tl.float32) * b_o1.to(tl.float32), 1)
    b_lse = tl.load(p_lse + o_row, mask=m_row, other=float("-inf"))
    store_stats(p_stats, o_row, m_row, b_lse, b_delta, tl.full([BM], 1.0, tl.float32), T, H, S, N, G, GP, BY_HEAD)


def room_by_head(rows: Tensor, kv_heads: int) -> Tensor:
    """Room for the numbers of rows [B,T,Hq] as the fused gradient reads them; rows that do not exist have theirs."""
    batch, tokens, heads = rows.shape
    group = heads // kv_heads
    padded, step = pad_group(group), max(1, NUMBERS_ALIGNED // pad_group(group))
    shape = 2, batch, kv_heads, cdiv(tokens, step) * step, padded
    if group == padded and tokens % step == 0:
        return torch.empty(shape, dtype=torch.float32, device=rows.device)
    room = torch.zeros(shape, dtype=torch.float32, device=rows.device)
    room[0].fill_(float("inf"))
    return room


def places(rows: Tensor, kv_heads: int | None, room: Tensor) -> dict[str, int]:
    """What `store_stats` takes, by name, to put the numbers of rows [B,T,Hq] where they belong in `room_by_head`."""
    if kv_heads is None:
        return {"T": 0, "H": 0, "S": 0, "N": 0, "G": 1, "GP": 1}
    sizes = {"T": rows.shape[1], "H": kv_heads, "S": room.stride(2), "N": room.stride(0)}
    return {**sizes, "G": rows.shape[2] // kv_heads, "GP": room.shape[-1]}


def backward_preprocess(do: Tensor, o: Tensor, lse: Tensor, kv_heads: int | None = None) -> Tensor:
    """Of an output o [B,T,Hq,Dv] without a gate, its gradient do and its natural lse fp32 [B,T,Hq].

    Returns:
        int64 [B,T,Hq]; or with `kv_heads` what the fused gradient reads, fp32 [2,B,Hkv,TP,GP].
    """
    do, o, lse = do.contiguous(), o.contiguous(), lse.contiguous()
    by_head = kv_heads is not None
    stats = room_by_head(lse, kv_heads) if by_head else torch.empty(lse.shape, dtype=torch.int64, device=o.device)
    rows, size = lse.numel(), o.shape[-1]
    if rows:
        at = places(lse, kv_heads, stats)
        _backward_preprocess[(cdiv(rows, ROWS),)](
            do, o, lse, stats, rows, at["T"], at["H"], at["S"], at["N"], G=at["G"], GP=at["GP"], BY_HEAD=by_head,
            D=size, BM=ROWS, num_warps=4,
        )  # fmt: skip
    return stats
