"""Sliding-window attention: query t reads the positions (t - window, t] of its sequence."""

from __future__ import annotations

from torch import Tensor

from nsa.kernels.ranges import fused
from nsa.kernels.ranges.backward import ranges_backward
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import Borders, KeyRanges, window_ranges
from nsa.kernels.recorded import Differentiable


def forward(
    q: Tensor, k: Tensor, v: Tensor, window: int, scale: float, cu_seqlens: Borders, q_start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """q [B,T,Hq,Dk], k [B,Tk,Hkv,Dk], v [B,Tk,Hkv,Dv] -> o [B,T,Hq,Dv], lse fp32 [B,T,Hq].

    q_start: int [B], position of each batch entry's first query; without it T = Tk.
    """
    return ranges_forward(q, k, v, ranges_of(q, k, window, cu_seqlens, q_start), scale)


def ranges_of(q: Tensor, k: Tensor, window: int, cu_seqlens: Borders, q_start: Tensor | None = None) -> KeyRanges:
    """Which keys each query reads."""
    return window_ranges(q.shape[1], window, cu_seqlens, q.device, q_start, k.shape[1])


def backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, stats: Tensor, window: int, scale: float, cu_seqlens: Borders,
    q_start: Tensor | None = None, *, dq: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk, dv in two kernels, the same bits in every run; stats and dq as in `ranges_backward`."""
    where = ranges_of(q, k, window, cu_seqlens, q_start)
    return ranges_backward(do, q, k, v, stats, where, scale, dq)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Borders, q_start: Tensor | None, window: int, scale: float,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return forward(q, k, v, window, scale, cu_seqlens, q_start)


def _backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Borders, q_start: Tensor | None, o: Tensor,
    lse: Tensor, window: int, scale: float, deterministic: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    where = ranges_of(q, k, window, cu_seqlens, q_start)
    return *fused.gradients(do, q, k, v, o, lse, where, scale, deterministic), None, None


window_attention = Differentiable("window", _forward, _backward)
"""`forward`, differentiable in o; the gradients in one kernel where they may differ in their last bits."""
