"""What the kernel bench measures: shapes, lengths and two kinds of inputs.

`random`: q and k are independent normals, so neighbouring queries share almost no blocks (all published figures).
`smooth`: each head of q and k follows x_t = 0.98 x_{t-1} + sqrt(1 - 0.98^2) noise, as a trained model's neighbours do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from nsa.config import NSAConfig

SMOOTHNESS = 0.98
REGIMES = ("random", "smooth")
SHAPES = {"P128": "64/4/128/128", "P192": "64/4/192/128", "L128": "32/8/128/128"}
"""Names of the shapes that the documents quote: query heads, KV heads, Dk, Dv."""


@dataclass(frozen=True)
class Case:
    """One problem: B = 1, `tokens` queries, gates and three branches sharing k and v."""

    shape: str
    heads: int
    kv_heads: int
    dk: int
    dv: int
    tokens: int
    regime: str
    config: NSAConfig

    @property
    def name(self) -> str:
        return f"{self.shape} T={self.tokens} {self.regime}"


def case_of(shape: str, tokens: int, regime: str) -> Case:
    """The case of a shape in SHAPES or written heads/kv_heads/dk/dv.

    Raises:
        ValueError: neither.
    """
    sizes = re.fullmatch(r"(\d+)/(\d+)/(\d+)/(\d+)", SHAPES.get(shape, shape))
    if sizes is None:
        raise ValueError(f"shape {shape!r}: expected one of {', '.join(SHAPES)} or heads/kv_heads/dk/dv")
    if regime not in REGIMES:
        raise ValueError(f"regime {regime!r}: expected one of {', '.join(REGIMES)}")
    return Case(shape, *(int(size) for size in sizes.groups()), tokens, regime, NSAConfig())


def inputs(case: Case, device: torch.device, dtype: torch.dtype, seed: int) -> dict[str, Tensor]:
    """q [1,T,Hq,Dk], k, v [1,T,Hkv,D*], gates [1,T,Hq,3] in (0,1) and the upstream gradient do [1,T,Hq,Dv]."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(1, case.tokens, *shape, device=device, generator=generator)

    q, k = normal(case.heads, case.dk), normal(case.kv_heads, case.dk)
    if case.regime == "smooth":
        q, k = smooth(q), smooth(k)
    others = normal(case.kv_heads, case.dv), normal(case.heads, 3).sigmoid(), normal(case.heads, case.dv)
    return {name: x.to(dtype) for name, x in zip(("q", "k", "v", "gates", "do"), (q, k, *others), strict=True)}


def smooth(noise: Tensor, keep: float = SMOOTHNESS, block: int = 256) -> Tensor:
    """The stationary sequence x_t = keep * x_{t-1} + sqrt(1 - keep^2) * noise_t along axis 1, x_0 = noise_0.

    Blocks of the sequence are products with the matrix of powers of `keep`; each block continues the one before.
    """
    steps = torch.arange(block, device=noise.device, dtype=torch.float64)
    powers = torch.where(steps[:, None] >= steps, keep ** (steps[:, None] - steps).clamp(min=0), 0.0).to(noise.dtype)
    decay = (keep ** (steps + 1)).to(noise.dtype)
    scaled = noise * (1 - keep**2) ** 0.5
    scaled[:, 0] = noise[:, 0]
    out, last = torch.empty_like(noise), torch.zeros_like(noise[:, 0])
    for first in range(0, noise.shape[1], block):
        part = scaled[:, first : first + block]
        n = part.shape[1]
        fresh = torch.einsum("ij,bjhd->bihd", powers[:n, :n], part)
        out[:, first : first + n] = fresh + decay[:n, None, None] * last[:, None]
        last = out[:, first + n - 1]
    return out
