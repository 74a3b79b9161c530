"""Dense causal attention: what the sparse layer is compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nsa import ops

IN_GROUPS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
"""Whether PyTorch's attention takes fewer KV heads than query heads."""


class DenseAttention(nn.Module):
    """Causal attention [B,T,dim] -> [B,T,dim] to all earlier tokens, with grouped heads and rotary positions."""

    def __init__(self, dim: int, n_heads: int, n_kv_heads: int, dk: int, dv: int, rope_base: float) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.dk, self.dv, self.rope_base = n_heads, n_kv_heads, dk, dv, rope_base
        self.to_q = nn.Linear(dim, n_heads * dk, bias=False)
        self.to_k = nn.Linear(dim, n_kv_heads * dk, bias=False)
        self.to_v = nn.Linear(dim, n_kv_heads * dv, bias=False)
        self.to_out = nn.Linear(n_heads * dv, dim, bias=False)

    def forward(self, x: Tensor, cache: None = None) -> Tensor:
        """Attention of x [B,T,dim] to itself; there is no cache."""
        if cache is not None:
            raise ValueError("DenseAttention has no cache: generate with use_cache=False")
        positions = torch.arange(x.shape[1], device=x.device)[None]
        q = ops.rotate(self.to_q(x).unflatten(-1, (self.n_heads, self.dk)), positions, self.rope_base)
        k = ops.rotate(self.to_k(x).unflatten(-1, (self.n_kv_heads, self.dk)), positions, self.rope_base)
        v = self.to_v(x).unflatten(-1, (self.n_kv_heads, self.dv))
        how = {"enable_gqa": True} if IN_GROUPS else {}
        if not IN_GROUPS:
            k, v = (y.repeat_interleave(self.n_heads // self.n_kv_heads, 2) for y in (k, v))
        o = F.scaled_dot_product_attention(*(y.transpose(1, 2) for y in (q, k, v)), is_causal=True, **how)
        return self.to_out(o.transpose(1, 2).flatten(2))
