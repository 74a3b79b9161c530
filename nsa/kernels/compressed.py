"""Attention to compressed tokens: query t reads the compressed tokens i of its sequence with i*d + l - 1 <= t."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsa.config import NSAConfig
from nsa.kernels import spans
from nsa.kernels.geometry import compressed_spans
from nsa.kernels.row_stats import row_stats


def forward(
    q: Tensor,
    k_cmp: Tensor,
    v_cmp: Tensor,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """q [B,T,Hq,Dk], k_cmp [B,Tc,Hkv,Dk], v_cmp [B,Tc,Hkv,Dv] -> o [B,T,Hq,Dv], lse fp32 [B,T,Hq] (-inf: o is 0).

    q_start: int [B], position of each batch entry's first query, default 0.
    """
    where = compressed_spans(q.shape[1], k_cmp.shape[1], config, cu_seqlens, q.device, q_start)
    return spans.forward(q, k_cmp, v_cmp, where, scale)


def backward(
    do: Tensor,
    q: Tensor,
    k_cmp: Tensor,
    v_cmp: Tensor,
    stats: Tensor,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None = None,
    *,
    dq: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk_cmp, dv_cmp; stats and dq as in `spans.backward`."""
    where = compressed_spans(q.shape[1], k_cmp.shape[1], config, cu_seqlens, q.device, q_start)
    return spans.backward(do, q, k_cmp, v_cmp, stats, where, scale, dq)


class CompressedAttention(torch.autograd.Function):
    """`forward`, differentiable in o."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k_cmp: Tensor,
        v_cmp: Tensor,
        config: NSAConfig,
        scale: float,
        cu_seqlens: Tensor | None,
        q_start: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        o, lse = forward(q, k_cmp, v_cmp, config, scale, cu_seqlens, q_start)
        ctx.save_for_backward(q, k_cmp, v_cmp, o, lse, cu_seqlens, q_start)
        ctx.config, ctx.scale = config, scale
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k_cmp, v_cmp, o, lse, *where = ctx.saved_tensors
        gradients = backward(do, q, k_cmp, v_cmp, row_stats(do, o, lse), ctx.config, ctx.scale, *where)
        return *gradients, None, None, None, None
