"""What the benches measure: shapes, lengths and two kinds of inputs.

`random`: q and k are independent normals, so neighbouring queries share almost no blocks (all published figures).
`smooth`: each head of q and k follows x_t = 0.98 x_{t-1} + sqrt(1 - 0.98^2) noise, as a trained model's neighbours do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.tools.sel_ranges import walk

SMOOTHNESS = 0.98
REGIMES = ("random", "smooth")
SHAPES = {"P128": "64/4/128/128", "P192": "64/4/192/128", "L128": "32/8/128/128"}
"""Names of the shapes that the documents quote: query heads, KV heads, Dk, Dv."""


@dataclass(frozen=True)
class Where:
    """Where it runs, in which dtype, with which seed."""

    device: torch.device
    dtype: torch.dtype
    seed: int


@dataclass(frozen=True)
class Case:
    """One problem; k and v are shared by the branches.

    Attributes:
        tokens: queries of each batch entry.
        lengths: packed sequences of these lengths, `tokens` in all; B is 1.
        starts: a chunk: where each batch entry's first query stands; keys reach as far as the last chunk's end.
        regime: of neighbouring queries, one of REGIMES.
        holes: give some queries no selected block.
        shape: how it was asked for, if by `case_of`.
        dim: width of the model, of a layer.
    """

    name: str
    heads: int
    kv_heads: int
    dk: int
    dv: int
    tokens: int
    batch: int = 1
    lengths: tuple[int, ...] | None = None
    starts: tuple[int, ...] | None = None
    config: NSAConfig = NSAConfig()
    dtype: str = "bf16"
    regime: str = "random"
    holes: bool = True
    shape: str = ""
    dim: int = 0

    @property
    def keys(self) -> int:
        return self.tokens + max(self.starts or (0,))

    def columns(self) -> dict[str, int]:
        """All sizes but the length, under the names of their options."""
        sizes = {name: getattr(self.config, name) for name in ("l", "d", "l_sel", "n_sel", "w")}
        heads = {"heads": self.heads, "groups": self.kv_heads, "dk": self.dk, "dv": self.dv}
        return {"B": self.batch, "dim": self.dim, **heads, **sizes}

    def cu_seqlens(self, device: torch.device) -> Tensor | None:
        """Borders of the packed sequences, int32 [N+1]."""
        if self.lengths is None:
            return None
        return torch.tensor([0, *accumulate(self.lengths)], dtype=torch.int32, device=device)

    def q_start(self, device: torch.device) -> Tensor | None:
        """int64 [B]."""
        return None if self.starts is None else torch.tensor(self.starts, device=device)


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
    return Case(f"{shape} T={tokens} {regime}", *map(int, sizes.groups()), tokens, regime=regime, shape=shape)


def inputs(case: Case, where: Where) -> dict[str, Tensor]:
    """q [B,T,Hq,Dk], k, v [B,Tk,Hkv,D*], gates [B,T,Hq,3] in (0,1) and the upstream gradient do [B,T,Hq,Dv].

    On the device "meta" they hold nothing.
    """
    device = where.device
    generator = None if device.type == "meta" else torch.Generator(device).manual_seed(where.seed)

    def normal(tokens: int, heads: int, size: int) -> Tensor:
        return torch.randn(case.batch, tokens, heads, size, device=device, generator=generator)

    made = {"q": normal(case.tokens, case.heads, case.dk), "k": normal(case.keys, case.kv_heads, case.dk)}
    if case.regime == "smooth":
        made = {name: walk(x, SMOOTHNESS) for name, x in made.items()}
    made["v"] = normal(case.keys, case.kv_heads, case.dv)
    made["gates"] = normal(case.tokens, case.heads, 3).sigmoid()
    made["do"] = normal(case.tokens, case.heads, case.dv)
    return {name: x.to(where.dtype) for name, x in made.items()}
