"""Selected attention: every query attends to the positions up to its own in the blocks it chose.

The host never waits for the device.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.kernels.recorded import Differentiable
from nsa.kernels.selected.backward import selected_backward
from nsa.kernels.selected.forward import selected_forward


def gradients(
    do: Tensor, o: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, *where: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """`selected_backward` for these results of `selected_forward`."""
    return selected_backward(do, q, k, v, backward_preprocess(do, o, lse), block_indices, *where)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, cu_seqlens: Tensor | None, q_start: Tensor | None,
    config: NSAConfig, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return selected_forward(q, k, v, block_indices, config, scale, cu_seqlens, q_start)


def _backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, cu_seqlens: Tensor | None,
    q_start: Tensor | None, o: Tensor, lse: Tensor, config: NSAConfig, scale: float,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    return *gradients(do, o, lse, q, k, v, block_indices, config, scale, cu_seqlens, q_start), None, None, None


_ATTENTION = Differentiable("selected", _forward, _backward)


def selected_attention(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, scale: float,
    cu_seqlens: Tensor | None = None, q_start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`selected_forward` with gradients of q, k and v: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    return _ATTENTION((q, k, v, block_indices, cu_seqlens, q_start), (config, scale))  # type: ignore[return-value]
