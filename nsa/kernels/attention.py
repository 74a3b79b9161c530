"""The whole of Native Sparse Attention as one differentiable function that keeps as little as it can.

Kept for the gradient: the inputs, the chosen blocks, and each branch's output and lse. The gate is a factor inside the
branches' gradient kernels and their dq is summed in place, so of the size of q the gradient makes only dq itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsa.config import NSAConfig
from nsa.kernels import combine, compressed, selected, topk, window


class NSAAttention(torch.autograd.Function):
    """Compressed, selected and window attention under gates: o [B,T,Hq,Dv]."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k_cmp: Tensor,
        v_cmp: Tensor,
        k_sel: Tensor,
        v_sel: Tensor,
        k_win: Tensor,
        v_win: Tensor,
        gates: Tensor,
        block_indices: Tensor | None,
        config: NSAConfig,
        scale: float,
        cu_seqlens: Tensor | None,
    ) -> Tensor:
        """q [B,T,Hq,Dk]; k_cmp, v_cmp [B,Tc,Hkv,D*]; the other keys and values [B,T,Hkv,D*]; gates [B,T,Hq,3]."""
        gates = gates.contiguous()
        o_cmp, lse_cmp = compressed.forward(q, k_cmp, v_cmp, config, scale, cu_seqlens)
        if block_indices is None:
            block_indices = topk.select(q, k_cmp, config, scale, cu_seqlens, lse_cmp)
        o_sel, lse_sel = selected.forward(q, k_sel, v_sel, block_indices, config, scale, cu_seqlens)
        o_win, lse_win = window.forward(q, k_win, v_win, config.w, scale, cu_seqlens)
        ctx.save_for_backward(
            q, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win, gates, block_indices, cu_seqlens,
            o_cmp, o_sel, o_win, lse_cmp, lse_sel, lse_win,
        )  # fmt: skip
        ctx.config, ctx.scale = config, scale
        return combine.forward(o_cmp, o_sel, o_win, gates)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        q, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win, gates, block_indices, cu_seqlens, *results = ctx.saved_tensors
        o_cmp, o_sel, o_win, *lses = results
        config, scale, do = ctx.config, ctx.scale, do.contiguous()
        delta = combine.deltas(do, (o_cmp, o_sel, o_win), gates)
        g_cmp, g_sel, g_win = gates.unbind(-1)
        dq, *d_cmp = compressed.backward(do, q, k_cmp, v_cmp, lses[0], delta[0], config, scale, cu_seqlens, gate=g_cmp)
        dq, *d_sel = selected.backward(
            do, q, k_sel, v_sel, lses[1], delta[1], block_indices, config, scale, cu_seqlens, gate=g_sel, dq=dq
        )
        dq, *d_win = window.backward(
            do, q, k_win, v_win, lses[2], delta[2], config.w, scale, cu_seqlens, gate=g_win, dq=dq
        )
        dgates = delta.movedim(0, -1).to(gates.dtype)
        return dq, *d_cmp, *d_sel, *d_win, dgates, None, None, None, None
