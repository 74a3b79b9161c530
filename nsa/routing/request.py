"""What an operation is asked to do, in facts that routing may use, and what was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.device import capability


@dataclass(frozen=True)
class Request:
    """One call of one operation (a name of `nsa.routing.registry.OPERATIONS`).

    `tokens` are query tokens, `keys` the length of the key axis, `dk` and `dv` the head dimensions (0 where the
    operation has none). `packed`: cu_seqlens was given; `offset`: there are keys before the first query, as q_start or
    cu_seqlens_k says.
    `lse`: the log-sum-exps are wanted too. `phi`: what makes compressed tokens here, `mean`, `weighted` or `mlp`; empty
    where they are given, or there are none.
    """

    operation: str
    device: torch.device
    dtype: torch.dtype
    batch: int
    tokens: int
    keys: int
    heads: int
    kv_heads: int
    dk: int
    dv: int
    config: NSAConfig | None = None
    packed: bool = False
    offset: bool = False
    needs_grad: bool = False
    deterministic: bool = False
    lse: bool = False
    phi: str = ""

    @property
    def group_size(self) -> int:
        """Query heads for each KV head."""
        return self.heads // self.kv_heads if self.kv_heads else 0

    @property
    def capability(self) -> tuple[int, int] | None:
        """As `nsa.device.capability`."""
        return capability(self.device)


class How(NamedTuple):
    """How queries attend, whatever to.

    Attributes:
        scale: of the logits.
        cu_seqlens, cu_seqlens_k, q_start: as in `nsa.ops`; the borders are int32 beside q.
        deterministic: gradients are to be bitwise repeatable.
    """

    scale: float
    cu_seqlens: Tensor | None = None
    cu_seqlens_k: Tensor | None = None
    q_start: Tensor | None = None
    deterministic: bool = False

    @property
    def where(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Borders and positions, as kernels take them."""
        return self.cu_seqlens, self.cu_seqlens_k, self.q_start


@dataclass(frozen=True)
class Decision:
    """Which backend runs an operation, and why.

    `requested` is the backend that an argument or a flag asked for. `fallback`: what was asked for, or what the
    device's order of preference puts first, cannot run. `declined` holds (backend, reason) in the order of
    consideration. `gradient` and `forward` say how the backend computes the gradient, if one is needed, and the forward
    pass, where it has several ways; else they are empty.
    `explicit`: an argument asked for `requested`. `overruled`: a profile, and no flag, keeps off what the device's
    order puts first.
    """

    operation: str
    backend: str
    requested: str | None
    fallback: bool
    reason: str
    declined: tuple[tuple[str, str], ...] = ()
    gradient: str = ""
    forward: str = ""
    explicit: bool = False
    overruled: bool = False

    @property
    def refused(self) -> bool:
        """Whether the call is an error: the backend that its argument names cannot run."""
        return self.explicit and self.fallback


@dataclass(frozen=True)
class Route(Decision):
    """A decision that was carried out. `device` is `cpu` or `cuda:sm_90`."""

    device: str = ""
    interpreted: bool = False
    seconds: float | None = None
    mean_abs_error: float | None = None

    def __str__(self) -> str:
        """`triton@cuda:sm_90`, `triton@cpu:interpreted`."""
        return f"{self.backend}@{self.device}" + (":interpreted" if self.interpreted else "")
