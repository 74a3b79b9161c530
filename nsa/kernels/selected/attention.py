"""Selected attention: every query attends to the positions up to its own in the blocks it chose.

The host never waits for the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.kernels.selected.backward import selected_backward
from nsa.kernels.selected.forward import selected_forward


class SelectedAttention(torch.autograd.Function):
    """`selected_forward` with gradients of q, k and v."""

    @staticmethod
    def forward(ctx, q, k, v, block_indices, config, scale, cu_seqlens=None, q_start=None):  # type: ignore[no-untyped-def]
        o, lse = selected_forward(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
        ctx.save_for_backward(q, k, v, o, lse, block_indices, cu_seqlens, q_start)
        ctx.config, ctx.scale = config, scale
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    def backward(ctx, do, _):  # type: ignore[no-untyped-def]
        q, k, v, o, lse, block_indices, cu_seqlens, q_start = ctx.saved_tensors
        grads = gradients(do, o, lse, q, k, v, block_indices, ctx.config, ctx.scale, cu_seqlens, q_start)
        return *grads, None, None, None, None, None


def gradients(
    do: Tensor, o: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, *where: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """`selected_backward` for these results of `selected_forward`."""
    return selected_backward(do, q, k, v, backward_preprocess(do, o, lse), block_indices, *where)
