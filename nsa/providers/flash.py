"""Where FlashAttention comes from: the package flash-attn, flash-attn-4, or torch's own varlen attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Varlen:
    """A causal varlen call: equal query and key borders int32 [N+1], `left` earlier keys or None for all."""

    borders: Tensor
    longest: int
    scale: float
    left: int | None
    deterministic: bool


Dense = Callable[[Tensor, Tensor, Tensor, float, "int | None", bool], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Flash:
    """A provider of FlashAttention.

    `varlen(q, k, v, call)` with q [rows,Hq,D], k, v [rows,Hkv,D] -> o [rows,Hq,D], lse fp32 [rows,Hq];
    `dense(q, k, v, scale, left, deterministic)` with [B,T,H,D] -> o, lse fp32 [B,T,Hq], `left` earlier keys or None
    for all; or None where there is no such entry point. `reason`: why it is not the package flash-attn.
    """

    name: str
    deterministic: bool
    varlen: Callable[[Tensor, Tensor, Tensor, Varlen], tuple[Tensor, Tensor]]
    dense: Dense | None
    reason: str = ""


@lru_cache
def provider() -> Flash | str:
    """The provider, or why there is none. A package that is installed and cannot be imported says its error."""
    package = _package()
    if isinstance(package, Flash):
        return package
    own = _torch_varlen()
    return replace(own, reason=package) if isinstance(own, Flash) else f"{package}; {own}"


def _package() -> Flash | str:
    """flash-attn; flash-attn-4, whose folder has the same name and is no package by itself, where it stands alone."""
    found = find_spec("flash_attn")
    if found is None:
        return "flash-attn is not installed"
    name, made = ("flash_attn.cute", _flash_4) if found.origin is None else ("flash_attn", _flash_2)
    try:
        return made(import_module(name))
    except ImportError as error:  # a wheel made for another ABI
        return f"flash-attn is installed and cannot be imported: {error}"


def _flash_2(package: Any) -> Flash:
    def varlen(q: Tensor, k: Tensor, v: Tensor, call: Varlen) -> tuple[Tensor, Tensor]:
        o, lse, _ = package.flash_attn_varlen_func(
            q, k, v, call.borders, call.borders, call.longest, call.longest,
            softmax_scale=call.scale, causal=True, window_size=_window(call.left),
            deterministic=call.deterministic, return_attn_probs=True,
        )  # fmt: skip
        return o, _rows_first(lse, call.borders)

    def dense(
        q: Tensor, k: Tensor, v: Tensor, scale: float, left: int | None, deterministic: bool
    ) -> tuple[Tensor, Tensor]:
        o, lse, _ = package.flash_attn_func(
            q, k, v, softmax_scale=scale, causal=True, window_size=_window(left), deterministic=deterministic,
            return_attn_probs=True,
        )  # fmt: skip
        return o, lse.detach().transpose(1, 2)

    return Flash(f"flash-attn {package.__version__}", True, varlen, dense)


def _flash_4(package: Any) -> Flash:
    """As of 4.0.0b36: a window without an end is None, and there is no third result."""

    def varlen(q: Tensor, k: Tensor, v: Tensor, call: Varlen) -> tuple[Tensor, Tensor]:
        o, lse = package.flash_attn_varlen_func(
            q, k, v, cu_seqlens_q=call.borders, cu_seqlens_k=call.borders,
            max_seqlen_q=call.longest, max_seqlen_k=call.longest, softmax_scale=call.scale, causal=True,
            window_size=(call.left, 0), deterministic=call.deterministic, return_lse=True,
        )  # fmt: skip
        return o, lse.transpose(0, 1)

    def dense(
        q: Tensor, k: Tensor, v: Tensor, scale: float, left: int | None, deterministic: bool
    ) -> tuple[Tensor, Tensor]:
        o, lse = package.flash_attn_func(
            q, k, v, softmax_scale=scale, causal=True, window_size=(left, 0), deterministic=deterministic,
            return_lse=True,
        )  # fmt: skip
        return o, lse.detach().transpose(1, 2)

    return Flash(f"flash-attn-4 {version('flash-attn-4')}", True, varlen, dense)


def _rows_first(lse: Tensor, borders: Tensor) -> Tensor:
    """lse [rows,H] from the package's [H,rows] (2.7 and newer) or [N,H,longest] (older)."""
    if lse.dim() == 2:
        return lse.transpose(0, 1)
    lengths = borders.diff()
    inside = torch.arange(lse.shape[2], device=lse.device) < lengths[:, None]
    return lse.transpose(1, 2)[inside]


def _torch_varlen() -> Flash | str:
    if find_spec("torch.nn.attention.varlen") is None:
        return f"torch {torch.__version__} has no flash varlen attention"
    if not torch.cuda.is_available():
        return "torch's flash varlen attention needs a CUDA device"
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    parameters = signature(varlen_attn).parameters
    if not {"window_size", "scale"} <= parameters.keys():
        return f"the flash varlen attention of torch {torch.__version__} has no window"
    grouped: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in parameters else {}

    def varlen(q: Tensor, k: Tensor, v: Tensor, call: Varlen) -> tuple[Tensor, Tensor]:
        if not grouped:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        o, lse = varlen_attn(
            q, k, v, call.borders, call.borders, call.longest, call.longest,
            return_aux=AuxRequest(lse=True), scale=call.scale, window_size=_window(call.left), **grouped,
        )  # fmt: skip
        return o, lse if lse.shape[0] == q.shape[0] else lse.transpose(0, 1)

    return Flash(f"torch {torch.__version__} flash varlen", False, varlen, None)


def _window(left: int | None) -> tuple[int, int]:
    """flash's (left, right): -1 is unlimited; right 0 is causal."""
    return (-1 if left is None else left, 0)
