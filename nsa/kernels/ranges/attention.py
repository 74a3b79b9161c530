"""Attention to ranges of keys, differentiable: the window and the compressed branch, each with its ranges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsa.config import NSAConfig
from nsa.kernels.ranges import fused
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import KeyRanges, compressed_ranges, window_ranges


def of_window(q: Tensor, k: Tensor, window: int, cu_seqlens: Tensor | None, q_start: Tensor | None = None) -> KeyRanges:
    """Which keys of k [B,Tk,Hkv,D] the queries of q [B,T,Hq,D] read; without q_start T = Tk."""
    return window_ranges(q.shape[1], window, cu_seqlens, q.device, q_start, k.shape[1])


def of_compressed(
    q: Tensor, k_cmp: Tensor, config: NSAConfig, cu_seqlens: Tensor | None, q_start: Tensor | None = None
) -> KeyRanges:
    """Which compressed tokens of k_cmp [B,Tc,Hkv,D] the queries of q [B,T,Hq,D] read."""
    return compressed_ranges(q.shape[1], k_cmp.shape[1], config, cu_seqlens, q.device, q_start)


class RangesAttention(torch.autograd.Function):
    """`ranges_forward`, differentiable in o; the gradients in one kernel where they may differ in their last bits."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, where: KeyRanges, scale: float, deterministic: bool = False
    ) -> tuple[Tensor, Tensor]:
        o, lse = ranges_forward(q, k, v, where, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.where, ctx.scale, ctx.deterministic = where, scale, deterministic
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        return *fused.gradients(do, q, k, v, o, lse, ctx.where, ctx.scale, ctx.deterministic), None, None, None
