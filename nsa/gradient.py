"""What has no gradient says so, instead of leaving a part of one out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SENTENCE = (
    "no gradient flows through a cache: what it holds keeps no graph. Train without a cache (nsa_attention, or the "
    "layer called without one), or take the step under torch.no_grad()"
)


class _NoGradient(torch.autograd.Function):
    """The identity, whose backward is an error."""

    @staticmethod
    def forward(ctx: Any, o: Tensor, *inputs: Tensor) -> Tensor:
        return o.view_as(o)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        raise RuntimeError(SENTENCE)


def no_gradient(o: Tensor, *inputs: Tensor | tuple[Tensor, ...]) -> Tensor:
    """`o`, computed from `inputs` without a graph; a backward pass that would go through it is refused."""
    if not torch.is_grad_enabled():
        return o
    flat = [x for given in inputs for x in ((given,) if isinstance(given, Tensor) else given)]
    return _NoGradient.apply(o, *flat) if any(x.requires_grad for x in flat) else o  # type: ignore[no-any-return]
