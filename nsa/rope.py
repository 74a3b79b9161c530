"""Rotary position embedding (arXiv 2104.09864), halves paired: dimension i turns with dimension i + D/2."""

from __future__ import annotations

import torch
from torch import Tensor

Angles = tuple[Tensor, Tensor]
"""Cosines and sines, fp32 [B,T,1,D]; the sines of the first half are negative, as the first of a pair takes them."""


def frequencies(dim: int, base: float, device: torch.device) -> Tensor:
    """Radians for each position, fp32 [dim/2]."""
    half = dim // 2
    return base ** (-torch.arange(half, device=device, dtype=torch.float32) / half)


def angles(positions: Tensor, dim: int, base: float, device: torch.device) -> Angles:
    """By what heads of `dim` dimensions turn at the positions, integers [B,T] or [1,T].

    base: of the geometric series of wavelengths.
    """
    frequency = frequencies(dim, base, device)
    angle = (positions.to(device, torch.float32)[..., None] * frequency)[:, :, None]  # [B,T,1,D/2]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)


def turn(x: Tensor, by: Angles) -> Tensor:
    """Turn each head of x [B,T,H,D]; products are at least fp32."""
    cos, sin = by
    return (x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin).to(x.dtype)


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Turn each head of x [B,T,H,D], D even, by its position; arguments as in `angles`."""
    return turn(x, angles(positions, x.shape[-1], base, x.device))
