"""Selected attention: every query attends to the positions up to its own in the blocks it chose.

The host never waits for the device.
"""

from __future__ import annotations

from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.kernels.ranges.fused import backward
from nsa.kernels.ranges.key_ranges import borders_of
from nsa.kernels.recorded import Differentiable
from nsa.kernels.selected import fused
from nsa.kernels.selected.backward import selected_backward
from nsa.kernels.selected.forward import selected_forward


def _forward(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None,
    q_start: Tensor | None, config: NSAConfig, scale: float, deterministic: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return selected_forward(q, k, v, block_indices, config, scale, borders_of(cu_seqlens, cu_seqlens_k), q_start)


def _backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, cu_seqlens: Tensor | None,
    cu_seqlens_k: Tensor | None, q_start: Tensor | None, o: Tensor, lse: Tensor, config: NSAConfig, scale: float,
    deterministic: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """In one kernel or in several."""
    do, where = do.contiguous(), (borders_of(cu_seqlens, cu_seqlens_k), q_start)
    given = q, k, v, backward_preprocess(do, o, lse), block_indices, config
    if fused.chosen(q, v, deterministic):
        dq, (pair,) = backward(do, q.contiguous(), [fused.Branch.of(*given, *where)], scale)
        return dq, *pair, *(None,) * 4
    return *selected_backward(do, *given, scale, *where), *(None,) * 4


selected_attention = Differentiable("selected", _forward, _backward)
"""`selected_forward` of (q, k, v, block_indices, cu_seqlens, cu_seqlens_k, q_start), with settings (config, scale,
deterministic): its gradients are those of q, k and v.
"""
