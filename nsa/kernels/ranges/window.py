"""Sliding-window attention: query t reads the positions (t - window, t] of its sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsa.kernels.ranges import fused
from nsa.kernels.ranges.backward import ranges_backward
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import KeyRanges, window_ranges


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """q [B,T,Hq,Dk], k [B,Tk,Hkv,Dk], v [B,Tk,Hkv,Dv] -> o [B,T,Hq,Dv], lse fp32 [B,T,Hq].

    q_start: int [B], position of each batch entry's first query; without it T = Tk.
    """
    return ranges_forward(q, k, v, ranges_of(q, k, window, cu_seqlens, q_start), scale)


def ranges_of(q: Tensor, k: Tensor, window: int, cu_seqlens: Tensor | None, q_start: Tensor | None = None) -> KeyRanges:
    """Which keys each query reads."""
    return window_ranges(q.shape[1], window, cu_seqlens, q.device, q_start, k.shape[1])


def backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    stats: Tensor,
    window: int,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None = None,
    *,
    dq: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv in two kernels, the same bits in every run; stats and dq as in `ranges_backward`."""
    where = ranges_of(q, k, window, cu_seqlens, q_start)
    return ranges_backward(do, q, k, v, stats, where, scale, dq)


class WindowAttention(torch.autograd.Function):
    """`forward`, differentiable in o; see `CompressedAttention` of the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        window: int,
        scale: float,
        cu_seqlens: Tensor | None,
        q_start: Tensor | None = None,
        deterministic: bool = False,
    ) -> tuple[Tensor, Tensor]:
        o, lse = forward(q, k, v, window, scale, cu_seqlens, q_start)
        ctx.save_for_backward(q, k, v, o, lse, cu_seqlens, q_start)
        ctx.window, ctx.scale, ctx.deterministic = window, scale, deterministic
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse, *at = ctx.saved_tensors
        where = ranges_of(q, k, ctx.window, *at)
        gradients = fused.gradients(do, q, k, v, o, lse, where, ctx.scale, ctx.deterministic)
        return *gradients, None, None, None, None, None
