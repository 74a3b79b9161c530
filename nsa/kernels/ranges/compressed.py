"""Attention to compressed tokens: query t reads the compressed tokens i of its sequence with i*d + l - 1 <= t."""

from __future__ import annotations

from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.ranges import fused
from nsa.kernels.ranges.backward import ranges_backward
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import Borders, KeyRanges, compressed_ranges
from nsa.kernels.recorded import Differentiable


def forward(
    q: Tensor, k_cmp: Tensor, v_cmp: Tensor, config: NSAConfig, scale: float, cu_seqlens: Borders,
    q_start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """q [B,T,Hq,Dk], k_cmp [B,Tc,Hkv,Dk], v_cmp [B,Tc,Hkv,Dv] -> o [B,T,Hq,Dv], lse fp32 [B,T,Hq] (-inf: o is 0).

    q_start: int [B], position of each batch entry's first query, default 0.
    """
    return ranges_forward(q, k_cmp, v_cmp, ranges_of(q, k_cmp, config, cu_seqlens, q_start), scale)


def ranges_of(
    q: Tensor, k_cmp: Tensor, config: NSAConfig, cu_seqlens: Borders, q_start: Tensor | None = None
) -> KeyRanges:
    """Which compressed tokens each query reads."""
    return compressed_ranges(q.shape[1], k_cmp.shape[1], config, cu_seqlens, q.device, q_start)


def backward(
    do: Tensor, q: Tensor, k_cmp: Tensor, v_cmp: Tensor, stats: Tensor, config: NSAConfig, scale: float,
    cu_seqlens: Borders, q_start: Tensor | None = None, *, dq: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk_cmp, dv_cmp in two kernels, the same bits in every run; stats and dq as in `ranges_backward`."""
    where = ranges_of(q, k_cmp, config, cu_seqlens, q_start)
    return ranges_backward(do, q, k_cmp, v_cmp, stats, where, scale, dq)


def _forward(
    q: Tensor, k_cmp: Tensor, v_cmp: Tensor, cu_seqlens: Borders, q_start: Tensor | None, config: NSAConfig,
    scale: float, deterministic: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return forward(q, k_cmp, v_cmp, config, scale, cu_seqlens, q_start)


def _backward(
    do: Tensor, q: Tensor, k_cmp: Tensor, v_cmp: Tensor, cu_seqlens: Borders, q_start: Tensor | None, o: Tensor,
    lse: Tensor, config: NSAConfig, scale: float, deterministic: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    where = ranges_of(q, k_cmp, config, cu_seqlens, q_start)
    return *fused.gradients(do, q, k_cmp, v_cmp, o, lse, where, scale, deterministic), None, None


compressed_attention = Differentiable("compressed", _forward, _backward)
"""`forward`, differentiable in o, as `window.window_attention`."""
