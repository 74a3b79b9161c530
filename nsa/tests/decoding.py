"""What the decode tests share: random problems, and a cache fed piece by piece."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import NSACache, NSAConfig, ops

SMALL = NSAConfig(l=8, d=4, l_sel=8, n_sel=4, w=13)
ODD = NSAConfig(l=12, d=3, l_sel=10, n_sel=5, w=7, init_blocks=2, local_blocks=1)
"""l/d = 4, and d does not divide l_sel."""


@dataclass(frozen=True)
class Inputs:
    """q [B,T,Hq,Dk], k and v triples (cmp, sel, win) [B,T,Hkv,D*], gates [B,T,Hq,3]."""

    q: Tensor
    k: tuple[Tensor, Tensor, Tensor]
    v: tuple[Tensor, Tensor, Tensor]
    gates: Tensor

    @classmethod
    def random(cls, tokens: int, *, batch: int = 2, dtype: torch.dtype = torch.float64, seed: int = 0) -> Inputs:
        """Hq = 4, Hkv = 2, Dk = 8, Dv = 6."""
        source = torch.Generator().manual_seed(seed)

        def normal(heads: int, dim: int) -> Tensor:
            return torch.randn(batch, tokens, heads, dim, generator=source, dtype=torch.float64).to(dtype)

        def triple(dim: int) -> tuple[Tensor, Tensor, Tensor]:
            return normal(2, dim), normal(2, dim), normal(2, dim)

        return cls(normal(4, 8), triple(8), triple(6), normal(4, 3).sigmoid())

    def rows(self, starts: list[int], counts: list[int]) -> Inputs:
        """Of entry b the tokens from starts[b] on, counts[b] of them, padded with what is no number to the longest."""

        def cut(x: Tensor) -> Tensor:
            pieces = [entry[s : s + c] for entry, s, c in zip(x, starts, counts, strict=True)]
            padded = (F.pad(piece, (0, 0, 0, 0, 0, max(counts) - len(piece)), value=math.nan) for piece in pieces)
            return torch.stack(list(padded))

        k, v = (tuple(cut(x) for x in triple) for triple in (self.k, self.v))
        return Inputs(cut(self.q), k, v, cut(self.gates))

    def between(self, start: int, end: int) -> Inputs:
        """The tokens [start, end)."""
        return self.rows([start] * len(self.q), [end - start] * len(self.q))

    def cache(self, config: NSAConfig, *, capacity: int = 5, page_size: int | None = None) -> NSACache:
        """An empty cache of these shapes; so small that it must grow."""
        how = {"capacity": capacity, "page_size": page_size, "dtype": self.q.dtype, "device": self.q.device}
        return NSACache(config, len(self.q), 2, 8, 6, **how)

    def whole(self, config: NSAConfig) -> Tensor:
        """Their attention without a cache."""
        return ops.nsa_attention(self.q, self.k, self.v, self.gates, config)

    def decode(self, cache: NSACache, counts: list[int] | None = None) -> Tensor:
        """All of them appended to the cache, and their attention."""
        return ops.nsa_decode(self.q, self.k, self.v, self.gates, cache, counts=counts)


def fed(inputs: Inputs, cache: NSACache, borders: list[int]) -> Tensor:
    """The outputs of the chunks between neighbouring borders, in order."""
    pieces = pairwise(borders)
    return torch.cat([inputs.between(start, end).decode(cache) for start, end in pieces], dim=1)
