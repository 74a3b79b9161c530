"""Rotary position embedding (arXiv 2104.09864), halves paired: dimension i turns with dimension i + D/2."""

from __future__ import annotations

import torch
from torch import Tensor


def frequencies(dim: int, base: float, device: torch.device) -> Tensor:
    """Radians for each position, fp32 [dim/2]."""
    half = dim // 2
    return base ** (-torch.arange(half, device=device, dtype=torch.float32) / half)


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Turn each head of x by its position; angles are fp32, products at least fp32.

    Args:
        x: [B,T,H,D], D even.
        positions: integers [B,T] or [1,T].
        base: of the geometric series of wavelengths.
    """
    half = x.shape[-1] // 2
    frequency = frequencies(x.shape[-1], base, x.device)
    angle = (positions.to(x.device, torch.float32)[..., None] * frequency)[:, :, None]  # [B,T,1,D/2]
    cos, sin = angle.cos(), angle.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)
