"""From an operation's tensors to the facts that routing uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor

from nsa import library, routing
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.routing import Request


class Where(TypedDict):
    """Where the queries stand, and the scale of their logits."""

    scale: float
    cu_seqlens: Tensor | None
    q_start: Tensor | None


def located(
    operation: str, q: Tensor, scale: float | None, cu_seqlens: Tensor | None, q_start: Tensor | None = None
) -> Where:
    """Where the queries stand: as the call says, the borders int32 beside q."""
    borders = checks.borders(operation, cu_seqlens, q)
    return {"scale": default_scale(q, scale), "cu_seqlens": borders, "q_start": q_start}


def attention_request(
    operation: str,
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    config: NSAConfig | None,
    where: Where,
    *,
    deterministic: bool = False,
    others: tuple[Tensor, ...] = (),
    lse: bool = False,
    phi: str = "",
) -> Request:
    """The request for q [B,T,Hq,Dk], k [B,Tk,Hkv,Dk], v [B,Tk,Hkv,Dv]; `others` may need gradients too."""
    inputs = (q, k, *others) if v is None else (q, k, v, *others)
    batch, tokens, heads, dk = q.shape
    _, keys, kv_heads, _ = k.shape
    return Request(
        operation,
        q.device,
        q.dtype,
        batch,
        tokens,
        keys,
        heads,
        kv_heads,
        dk,
        0 if v is None else v.shape[3],
        config,
        where["cu_seqlens"] is not None,
        where["q_start"] is not None,
        library.needs_grad(inputs),
        repeatable(deterministic),
        lse or library.keeping() is not None,
        phi,
    )


def gradient(
    request: Request,
    backend: routing.BackendChoice,
    grad: Tensor,
    results: Sequence[Tensor],
    inputs: tuple[object, ...],
    where: Where,
) -> Sequence[Tensor] | None:
    """The gradients of q, k and v of an attention with these results (o, lse); None if its backend does not say."""
    compute = getattr(routing.module(request, backend), f"{request.operation}_gradient", None)
    return compute and compute(grad, *results[:2], *inputs, **where, deterministic=request.deterministic)


def attention_shapes(q: Tensor, v: Tensor) -> list[Tensor]:
    """New tensors for o [B,T,Hq,Dv] and lse [B,T,Hq] of q [B,T,Hq,Dk] and v [B,Tk,Hkv,Dv]."""
    wide = torch.promote_types(q.dtype, torch.float32)
    return [q.new_empty(*q.shape[:3], v.shape[-1]), q.new_empty(q.shape[:3], dtype=wide)]


def returns_with_lse(results: list[Tensor], x: library.Arguments) -> Tensor | tuple[Tensor, Tensor]:
    """What an operation with `return_lse` returns of these results."""
    return (results[0], results[1]) if x["return_lse"] else results[0]


def repeatable(deterministic: bool) -> bool:
    """Whether gradients are to be the same bit for bit in every run: as the call or PyTorch's own switch says."""
    return deterministic or torch.are_deterministic_algorithms_enabled()


def default_scale(q: Tensor, scale: float | None) -> float:
    """Dk**-0.5 unless given.

    Raises:
        TypeError: what is no number.
    """
    if scale is None:
        return q.shape[-1] ** -0.5
    try:
        return float(scale)
    except (TypeError, ValueError):
        raise TypeError(f"scale must be a number or None, got {scale!r}") from None


def widened(x: Tensor) -> Tensor:
    """A copy in fp64 without gradients, for the oracle."""
    return x.detach().double()
