"""Random tensors for the benches that measure operations by themselves."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nsa.bench.options import Shape, Where


@dataclass(frozen=True)
class Tensors:
    """q [B,S,Hq,Dk], k [B,S,Hkv,Dk], v [B,S,Hkv,Dv], gates [B,S,Hq,3]."""

    q: Tensor
    k: Tensor
    v: Tensor
    gates: Tensor

    @classmethod
    def random(cls, shape: Shape, where: Where, length: int) -> Tensors:
        """Independent normals; gates in (0, 1)."""
        torch.manual_seed(where.seed)

        def normal(heads: int, dim: int) -> Tensor:
            return torch.randn(shape.batch, length, heads, dim, device=where.device, dtype=where.dtype)

        keys = normal(shape.kv_heads, shape.dk), normal(shape.kv_heads, shape.dv)
        return cls(normal(shape.heads, shape.dk), *keys, normal(shape.heads, 3).sigmoid())

    def for_sdpa(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v as [B,Hq,S,D], each KV head repeated for its group."""
        group_size = self.q.shape[2] // k.shape[2]
        k, v = (x.repeat_interleave(group_size, dim=2).transpose(1, 2).contiguous() for x in (k, v))
        return self.q.transpose(1, 2).contiguous(), k, v
