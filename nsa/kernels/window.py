"""Sliding-window attention: query t reads the positions (t - window, t] of its sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsa.kernels import spans
from nsa.kernels.common import row_dot
from nsa.kernels.geometry import window_spans


def forward(
    q: Tensor, k: Tensor, v: Tensor, window: int, scale: float, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """q [B,T,Hq,Dk], k [B,T,Hkv,Dk], v [B,T,Hkv,Dv] -> o [B,T,Hq,Dv], lse fp32 [B,T,Hq]."""
    return spans.forward(q, k, v, window_spans(q.shape[1], window, cu_seqlens, q.device), scale)


def backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lse: Tensor,
    delta: Tensor,
    window: int,
    scale: float,
    cu_seqlens: Tensor | None,
    *,
    gate: Tensor | None = None,
    dq: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv; delta, gate and dq as in `spans.backward`."""
    where = window_spans(q.shape[1], window, cu_seqlens, q.device)
    return spans.backward(do, q, k, v, lse, delta, where, scale, gate, dq)


class WindowAttention(torch.autograd.Function):
    """`forward` without lse, differentiable."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int, scale: float, cu_seqlens: Tensor | None
    ) -> Tensor:
        o, lse = forward(q, k, v, window, scale, cu_seqlens)
        ctx.save_for_backward(q, k, v, o, lse, cu_seqlens)
        ctx.window, ctx.scale = window, scale
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse, cu_seqlens = ctx.saved_tensors
        gradients = backward(do, q, k, v, lse, row_dot(do, o), ctx.window, ctx.scale, cu_seqlens)
        return *gradients, None, None, None
