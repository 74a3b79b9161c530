"""The whole of Native Sparse Attention as one differentiable function that keeps as little as it can.

Kept for the gradient: the inputs, the chosen blocks, and each branch's output and lse. The gate is a factor inside the
branches' gradient kernels and their dq is summed in place, so of the size of q the gradient makes only dq itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsa.config import NSAConfig
from nsa.kernels import combine, compressed, compression, selected, topk, window

HOST_BOUND = 16384
"""Up to so many queries the gradient of the window goes first: large kernels, while the host prepares the index."""


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
        q_start: Tensor | None,
        compress: bool,
        keep: bool,
    ) -> Tensor:
        """q [B,T,Hq,Dk]; k_cmp, v_cmp [B,Tc,Hkv,D*]; the other keys and values [B,Tk,Hkv,D*]; gates [B,T,Hq,3].

        compress: k_cmp and v_cmp are [B,Tk,Hkv,D*] too, and their means are taken here.
        keep: whether a gradient will be asked for.
        """
        where = cu_seqlens, q_start
        gates = gates.contiguous()
        # The window first: while it runs, the host prepares the launches of the others.
        o_win, lse_win = window.forward(q, k_win, v_win, config.w, scale, *where)
        ctx.spans = compression.spans_of(k_cmp, config, cu_seqlens) if compress else None
        if compress:
            k_cmp, v_cmp = compression.forward(k_cmp, v_cmp, config, ctx.spans)
        o_cmp, lse_cmp = compressed.forward(q, k_cmp, v_cmp, config, scale, *where)
        if block_indices is None:
            block_indices = topk.select(q, k_cmp, config, scale, cu_seqlens, lse_cmp, q_start)
        o = torch.empty_like(o_cmp)
        into = selected.Sum(o_cmp, o_win, gates, o, keep=keep)
        o_sel, lse_sel = selected.forward(q, k_sel, v_sel, block_indices, config, scale, *where, into=into)
        if keep:
            ctx.save_for_backward(
                q, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win, gates, block_indices, *where,
                o_cmp, o_sel, o_win, lse_cmp, lse_sel, lse_win,
            )  # fmt: skip
        ctx.config, ctx.scale = config, scale
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        q, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win, gates, block_indices, *rest = ctx.saved_tensors
        where, (o_cmp, o_sel, o_win), lses = rest[:2], rest[2:5], rest[5:]
        config, scale, do = ctx.config, ctx.scale, do.contiguous()
        delta, dgates, (g_cmp, g_sel, g_win) = combine.deltas(do, (o_cmp, o_sel, o_win), gates)
        dq, *d_cmp = compressed.backward(do, q, k_cmp, v_cmp, lses[0], delta[0], config, scale, *where, gate=g_cmp)
        of_selected = partial(
            selected.backward, do, q, k_sel, v_sel, lses[1], delta[1], block_indices, config, scale, *where, gate=g_sel
        )
        of_window = partial(
            window.backward, do, q, k_win, v_win, lses[2], delta[2], config.w, scale, *where, gate=g_win
        )
        if q.shape[:2].numel() <= HOST_BOUND:
            dq, *d_win = of_window(dq=dq)
            dq, *d_sel = of_selected(dq=dq)
        else:  # the window's dk and dv are not held while the selected branch needs the most memory
            dq, *d_sel = of_selected(dq=dq)
            dq, *d_win = of_window(dq=dq)
        if ctx.spans is not None:
            d_cmp = compression.backward(*d_cmp, k_sel.shape[1], config, ctx.spans, where[0])
        return dq, *d_cmp, *d_sel, *d_win, dgates, *[None] * 7
