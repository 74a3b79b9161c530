"""Rotary position embedding of queries and keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nsa import library, routing
from nsa.ops import checks
from nsa.routing import Request

NAME = "rotate"


def _shapes(x: library.Arguments, keep: bool) -> list[Tensor]:
    return [x["x"].new_empty(x["x"].shape)]


def _gradient(grad: Tensor, results: list[Tensor], x: library.Arguments) -> Sequence[Tensor] | None:
    """To turn back is to turn by the negative positions."""
    module = routing.module(_request(grad, True), x["backend"])
    return module and [module.rotate(grad, -x["positions"], x["base"])]


@library.operator(_shapes, _gradient)
def rotate(
    x: Tensor,
    positions: Tensor,
    base: float,
    *,
    backend: routing.BackendChoice = None,
    strict: bool = False,
) -> Tensor:
    """Rotary position embedding with halves paired: dimension i turns with dimension i + D/2 (`nsa.rope`).

    Args:
        x: queries or keys [B,T,H,D], D even; any strides.
        positions: integers [B,T], or [1,T] for all batch entries.
        base: of the geometric series of wavelengths.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        [B,T,H,D], contiguous.
    """
    checks.shape(NAME, "x", x, "[B,T,H,D]")
    checks.alike(NAME, x=x)
    checks.shape(NAME, "positions", positions, "[B,T]")
    checks.rotation(NAME, x.shape[-1], base)
    if positions.shape[1] != x.shape[1] or positions.shape[0] not in (1, x.shape[0]):
        raise ValueError(
            f"{NAME}: positions must be [B={x.shape[0]},T={x.shape[1]}] or [1,T], got {list(positions.shape)}"
        )
    if positions.dtype not in (torch.int32, torch.int64) or positions.device != x.device:
        raise ValueError(
            f"{NAME}: positions must be int32 or int64 on {x.device}, got {positions.dtype} on {positions.device}"
        )
    return routing.run(
        _request(x, library.needs_grad([x])),
        lambda module: module.rotate(x, positions, base),
        backend=backend,
        strict=strict,
    )


def _request(x: Tensor, needs_grad: bool) -> Request:
    batch, tokens, heads, dim = x.shape
    return Request(NAME, x.device, x.dtype, batch, tokens, tokens, heads, heads, dim, dim, needs_grad=needs_grad)
