"""From an operation's tensors to the facts that routing uses."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.routing import Request


class Where(TypedDict):
    """Where the queries stand, and the scale of their logits."""

    scale: float
    cu_seqlens: Tensor | None
    q_start: Tensor | None


def attention_request(
    operation: str,
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    config: NSAConfig | None,
    *,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None = None,
    deterministic: bool = False,
    others: tuple[Tensor, ...] = (),
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
        cu_seqlens is not None,
        q_start is not None,
        torch.is_grad_enabled() and any(x.requires_grad for x in inputs),
        deterministic,
    )


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
