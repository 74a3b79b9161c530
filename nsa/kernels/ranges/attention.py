"""Attention to ranges of keys, differentiable: the window and the compressed branch, each with its ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from nsa.kernels.ranges import fused
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import KeyRanges, borders_of, of_compressed, of_window
from nsa.kernels.recorded import Differentiable


def _attention(name: str, ranges_of: Callable[..., KeyRanges]) -> Differentiable:
    """`ranges_forward` of (q, k, v, cu_seqlens, cu_seqlens_k, q_start), with settings (what the ranges are of, scale,
    deterministic), differentiable in o; the gradients in one kernel where they may differ in their last bits.
    """

    def forward(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None,
        q_start: Tensor | None, of: Any, scale: float, deterministic: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return ranges_forward(q, k, v, ranges_of(q, k, of, borders_of(cu_seqlens, cu_seqlens_k), q_start), scale)

    def backward(
        do: Tensor, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None,
        q_start: Tensor | None, o: Tensor, lse: Tensor, of: Any, scale: float, deterministic: bool,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        where = ranges_of(q, k, of, borders_of(cu_seqlens, cu_seqlens_k), q_start)
        return *fused.gradients(do, q, k, v, o, lse, where, scale, deterministic), None, None, None

    return Differentiable(name, forward, backward)


window_attention = _attention("window", of_window)
"""Query t reads the positions (t - window, t] of its sequence."""

compressed_attention = _attention("compressed", of_compressed)
"""Query t reads the compressed tokens i of its sequence with i*d + l - 1 <= t; `of` is the configuration."""
