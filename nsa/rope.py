"""Rotary position embedding (arXiv 2104.09864), halves paired: dimension i turns with dimension i + D/2."""

from __future__ import annotations

import torch
from torch import Tensor

from nsa import vector_math

vector_math.call_each_once()


def frequencies(dim: int, base: float, device: torch.device) -> Tensor:
    """Radians for each position, fp32 [dim/2]."""
    half = dim // 2
    return base ** (-torch.arange(half, device=device, dtype=torch.float32) / half)


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Turn each head of x [B,T,H,D], D even, by its position, integers [B,T] or [1,T].

    Angles are fp32, whatever x is; products are at least fp32.
    """
    frequency = frequencies(x.shape[-1], base, x.device)
    angle = positions.to(x.device, torch.float32)[..., None, None] * frequency  # [B,T,1,D/2]
    angle = angle.to(torch.promote_types(x.dtype, torch.float32))
    cos, sin = angle.cos(), angle.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
