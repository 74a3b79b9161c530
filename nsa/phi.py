"""Learned compression maps (the paper's phi, Eq. 7) as bundles of tensors. No map at all means the mean."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class WeightedPhi:
    """Weighted sum over the span's tokens. weight [Hkv, l]; the mean is 1/l everywhere."""

    weight: Tensor


@dataclass(frozen=True)
class MlpPhi:
    """gelu((block + position) @ w_in + b_in) @ w_out + b_out for each KV head, with the exact (erf) GELU.

    Block and position are flattened to l*D. position [Hkv, l, D], w_in [Hkv, l*D, M], b_in [Hkv, M],
    w_out [Hkv, M, D], b_out [Hkv, D].
    """

    position: Tensor
    w_in: Tensor
    b_in: Tensor
    w_out: Tensor
    b_out: Tensor


Phi = WeightedPhi | MlpPhi
