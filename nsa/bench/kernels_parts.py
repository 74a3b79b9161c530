"""The operations that the kernel bench times, ours and others', and what each must compute and move at least."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from nsa import ops
from nsa.bench.cases import Case
from nsa.bench.roofline import Work, attention_work, pairs
from nsa.ops import nsa_attention

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Part:
    """One operation by one implementation.

    Attributes:
        part, by: what is computed, and whose code does it.
        call: from tensors to the output whose gradient is taken.
        leaves: names of the tensors that get gradients; none means there is no backward pass.
        forward, backward: the least work of each pass.
        note: in which way it computes something else than ours.
    """

    part: str
    by: str
    call: Callable[[Tensors], Tensor]
    leaves: tuple[str, ...]
    forward: Work
    backward: Work
    note: str = ""


# --- least work ---


def _size(*tensors: Tensor) -> float:
    return float(sum(x.nbytes for x in tensors))


def least_work(case: Case, x: Tensors) -> dict[str, tuple[Work, Work]]:
    """Forward and backward of every part; x comes from `prepare`."""
    count = {name: case.batch * number for name, number in pairs(case.tokens, case.config).items()}
    q, o, kv, kv_cmp = _size(x["q"]), _size(x["o_cmp"]), _size(x["k"], x["v"]), _size(x["k_cmp"], x["v_cmp"])
    compressed = attention_work(count["compressed"], case, q + kv_cmp, o)
    selected = attention_work(count["selected"], case, q + kv, o)
    window = attention_work(count["window"], case, q + kv, o)
    scores = Work(q + _size(x["k_cmp"], x["indices"]), 2.0 * count["compressed"] * case.heads * case.dk)
    return {
        "whole": (compressed[0] + scores + selected[0] + window[0], compressed[1] + selected[1] + window[1]),
        "compressed": compressed, "select": (scores, Work(0)), "selected": selected, "window": window,
        "combine": (Work(4 * o + _size(x["gates"])), Work(8 * o + 2 * _size(x["gates"]))),
    }  # fmt: skip


# --- ours ---


def prepare(case: Case, x: Tensors, backend: str | None = None) -> Tensors:
    """The inputs with what the parts need of each other: compressed keys and values, lse, blocks, branch outputs."""
    config, how = case.config, {"backend": backend, "strict": backend is not None}
    with torch.no_grad():
        k_cmp, v_cmp = (ops.compress(x[name], config) for name in "kv")
        o_cmp, lse = ops.compressed_attention(x["q"], k_cmp, v_cmp, config, **how)
        indices = ops.select_blocks(x["q"], k_cmp, config, lse=lse, **how)
    made = {"k_cmp": k_cmp, "v_cmp": v_cmp, "lse": lse, "indices": indices, "o_cmp": o_cmp}
    return {**x, **made, "o_sel": torch.randn_like(o_cmp), "o_win": torch.randn_like(o_cmp)}


def our_parts(case: Case, x: Tensors, backend: str, deterministic: bool = False) -> dict[str, Part]:
    """Every operation of the library on `backend`, by name; x comes from `prepare`."""
    how, work = {"backend": backend, "strict": True}, least_work(case, x)
    attend = {**how, "deterministic": deterministic}
    config, blocks = {"config": case.config}, {"block_indices": x["indices"], "validate": False}
    scored = {name: x[name] for name in ("q", "k_cmp", "lse")}
    calls: dict[str, tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]] = {
        "whole": (nsa_attention, ("q", "k", "v", "gates"), {**config, **attend}),
        "compressed": (ops.compressed_attention, ("q", "k_cmp", "v_cmp"), {**config, **attend}),
        "select": (ops.select_blocks, (), {**scored, **config, **how}),
        "selected": (ops.selected_attention, ("q", "k", "v"), {**blocks, **config, **attend}),
        "window": (ops.sliding_window_attention, ("q", "k", "v"), {"window": case.config.w, **attend}),
        "combine": (ops.gated_combine, ("o_cmp", "o_sel", "o_win", "gates"), how),
    }
    return {
        name: Part(name, backend, partial(called, function, leaves, settings), leaves, *work[name])
        for name, (function, leaves, settings) in calls.items()
    }


def called(function: Callable[..., Any], leaves: Iterable[str], settings: dict[str, Any], t: Tensors) -> Tensor:
    """The function's first result, of the tensors of these names."""
    found = function(**{name: t[name] for name in leaves}, **settings)
    return found if isinstance(found, Tensor) else found[0]  # type: ignore[no-any-return]


# --- others ---


SDPA = {"sdpa-flash": SDPBackend.FLASH_ATTENTION, "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION}
"""Kernels of PyTorch's dense attention; by any other name, the one that it chooses."""


def kernel_of(by: str) -> AbstractContextManager[Any]:
    """Inside the block PyTorch's attention is by this kernel."""
    return sdpa_kernel(SDPA[by]) if by in SDPA else nullcontext()


def dense_attention(by: str, t: Tensors) -> Tensor:
    """Causal attention to all keys by one of PyTorch's kernels; values are padded where it wants Dv = Dk."""
    q, k, v = (t[name].transpose(1, 2) for name in ("q", "k", "v"))
    dv = v.shape[-1]
    padding = q.shape[-1] - dv if by == "sdpa-flash" else 0
    with kernel_of(by):
        o = F.scaled_dot_product_attention(q, k, F.pad(v, (0, padding)), is_causal=True, enable_gqa=True)
    return o[..., :dv].transpose(1, 2)


def for_sdpa(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v as [B,Hq,S,D], each KV head repeated for its group."""
    group_size = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group_size, dim=2).transpose(1, 2).contiguous() for x in (k, v))
    return q.transpose(1, 2).contiguous(), k, v
