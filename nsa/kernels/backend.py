"""The Triton backend: the kernels of `nsa.kernels` as the operations of `nsa.routing.registry`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor

from nsa.config import NSAConfig
from nsa.host import to_device
from nsa.kernels import attention as whole
from nsa.kernels import rotary
from nsa.kernels.combine import gated_combine
from nsa.kernels.common.launch import VERSION
from nsa.kernels.common.sizes import pad_group
from nsa.kernels.compression.mlp import mlp_of_spans
from nsa.kernels.compression.weighted import span_sums
from nsa.kernels.decode.plan import LARGEST_PART, parts_of
from nsa.kernels.decode.step import cached_attention, decode_step
from nsa.kernels.ranges.attention import compressed_attention, window_attention
from nsa.kernels.ranges.key_ranges import borders_of
from nsa.kernels.recorded import Differentiable, Tensors, repeated
from nsa.kernels.selected.attention import selected_attention
from nsa.kernels.selection.select import select_blocks
from nsa.kernels.ways import forward as forward
from nsa.kernels.ways import gradient as gradient
from nsa.phi import MlpPhi, Phi
from nsa.plans import layout, sharing
from nsa.routing import How, Request
from nsa.routing.registry import MOST_TOKENS

if TYPE_CHECKING:
    from nsa.cache import NSACache, Triple

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
OLDEST = (3, 0)
OLDEST_HOPPER_GRADIENT = (3, 3)  # before, selected gradients compile unpipelined, which later versions got wrong there
LARGEST_HEAD = 256
LARGEST_GROUP = 64
LARGEST_GROUP_FP32 = 32
"""One token's rows of more query heads would not fit on chip in fp32, beside their gradient."""
MOST_PARTS = 16
"""Of a larger group in a step of decode: each reads the keys again."""
CHOOSING = ("select", "attention", "decode")
LARGEST_CHOICE = 128
"""Blocks that a query chooses: they are put in order against each other, in registers."""
ORDERS_BORDERS = True
"""Of the whole operation: borders on the device need not be looked at before."""


# --- what can run ---


def supports(request: Request) -> str | None:
    """None, or why this request cannot run on these kernels."""
    checks = (_version(request), _device(request), _dtype(request), _shape(request))
    return next((reason for reason in checks if reason is not None), None)


def _version(request: Request) -> str | None:
    if VERSION < OLDEST:
        return f"Triton {triton.__version__} is older than 3.0"
    selecting = request.operation in ("selected", "attention") and request.needs_grad
    if selecting and VERSION < OLDEST_HOPPER_GRADIENT and (request.capability or (0, 0)) >= (9, 0):
        return f"the gradient of selected attention on SM 9.0 or higher needs Triton 3.3, not {triton.__version__}"
    return None


def _device(request: Request) -> str | None:
    if INTERPRETED:
        return None if request.device.type == "cpu" else "TRITON_INTERPRET=1 interprets kernels, on the CPU only"
    if torch.version.hip is not None and request.device.type == "cuda":
        return f"kernels are written for NVIDIA GPUs, and this PyTorch is built for AMD's (ROCm {torch.version.hip})"
    if request.capability is None:
        return f"kernels need a CUDA device, not {request.device.type} (or TRITON_INTERPRET=1 on the CPU)"
    major, minor = request.capability
    return None if major >= 8 else f"kernels need compute capability 8.0 or higher, this device has {major}.{minor}"


def _dtype(request: Request) -> str | None:
    known = (torch.float16, torch.float32) if INTERPRETED else (torch.float16, torch.bfloat16, torch.float32)
    if request.dtype in known:
        return None
    where = "Triton's interpreter" if INTERPRETED else "the kernels"
    return f"{where} cannot compute in {str(request.dtype).removeprefix('torch.')}"


def _shape(request: Request) -> str | None:
    if max(request.dk, request.dv) > LARGEST_HEAD:
        return f"head dimensions {request.dk} and {request.dv} are not both within {LARGEST_HEAD}"
    if request.operation in ("rotate", "compress"):
        return None  # heads are apart from each other
    slots = request.config.n_sel if request.config and request.operation in CHOOSING else 0
    if slots > LARGEST_CHOICE:
        return f"a query selects {slots} blocks, more than the {LARGEST_CHOICE} that the kernels put in order"
    if request.operation == "decode":
        most = min(MOST_TOKENS, request.config.w) if request.config else MOST_TOKENS
        if request.tokens > most:
            return f"{request.tokens} new tokens of a sequence are more than the {most} that one step takes"
        if parts_of(request.group_size) <= MOST_PARTS:
            return None
        fitting = f"{MOST_PARTS} or fewer equal parts of at most {LARGEST_PART} heads"
        return f"{request.group_size} query heads share a KV head, which make no {fitting}"
    if pad_group(request.group_size) > _most_heads(request):
        return f"{request.group_size} query heads share a KV head, more than a tile's {_most_heads(request)}"
    return None


def _most_heads(request: Request) -> int:
    """Query heads of one KV head that the kernels' tiles hold."""
    small = request.device.type != "cuda" or request.operation == "combine"
    return LARGEST_GROUP if small or request.dtype != torch.float32 else LARGEST_GROUP_FP32


# --- the operations: those of `nsa.routing.registry`, as their kernels take them ---


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    return rotary.rotate((x, positions), (base,))[0]  # type: ignore[return-value]


def compress(x: Tensor, config: NSAConfig, phi: Phi | None, cu_seqlens: Tensor | None) -> Tensor:
    if isinstance(phi, MlpPhi):
        tensors = x, cu_seqlens, phi.position, phi.w_in, phi.b_in, phi.w_out, phi.b_out
        return mlp_of_spans(tensors, (config,))[0]  # type: ignore[return-value]
    weight = None if phi is None else phi.weight
    return span_sums((x, weight, cu_seqlens), (config, x.shape[1]))[0]  # type: ignore[return-value]


def select(q: Tensor, k_cmp: Tensor, config: NSAConfig, lse: Tensor | None, how: How) -> Tensor:
    def chosen(
        q: Tensor, k_cmp: Tensor, lse: Tensor | None, cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None,
        q_start: Tensor | None,
    ) -> tuple[Tensor]:  # fmt: skip
        return (select_blocks(q, k_cmp, config, how.scale, borders_of(cu_seqlens, cu_seqlens_k), lse, q_start),)

    return repeated("select", chosen, (q, k_cmp, lse, *how.where), ())[0]  # type: ignore[return-value]


def combine(o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, gates: Tensor) -> Tensor:
    return gated_combine((o_cmp, o_sel, o_win, gates), ())[0]  # type: ignore[return-value]


def _attending(function: Differentiable) -> tuple[Callable[..., Tensors], Callable[..., Tensors]]:
    """An attention of queries to keys of theirs, and its gradients from results: those of q, k and v."""

    def attended(*inputs: Any) -> Tensors:
        *tensors, sizes, how = inputs
        return function((*tensors, *how.where), (sizes, how.scale, how.deterministic))

    def gradient(do: Tensor, o: Tensor, lse: Tensor, *inputs: Any) -> Tensors:
        *tensors, sizes, how = inputs
        kept = *tensors, *how.where, o, lse
        kind = *map(layout, (do, o, lse)), sharing((do, *kept))  # the plan's key tells the layouts of all but these
        return repeated("gradient", function.backward, (do, *kept), (sizes, how.scale, how.deterministic), kind)[:3]

    return attended, gradient


attention, attention_gradient = whole.attention, whole.gradient
compressed, compressed_gradient = _attending(compressed_attention)
selected, selected_gradient = _attending(selected_attention)
window, window_gradient = _attending(window_attention)


# --- other gradients, from results ---


def rotate_gradient(do: Tensor, o: Tensor, x: Tensor, positions: Tensor, base: float) -> list[Tensor]:
    return [rotary.forward(do, positions, base, back=True)]


# --- steps through a cache ---

decode = cached_attention


def step(
    q: Tensor, k: Triple, v: Triple, gates: Tensor, cache: NSACache, *, counts: Sequence[int] | Tensor, scale: float
) -> Triple:
    """Append a token of each sequence, for which there is room, and attend, in three kernels; a learned map makes
    compressed tokens before. Several, with means, take two more kernels."""
    mapping, new, tokens = None, counts, q.shape[1]
    if not isinstance(counts, Tensor):  # else a graph is captured
        mapping = cache.slot_mapping(tokens, counts)
        new = None if all(count == tokens for count in counts) else to_device(counts, q.device, torch.int32)
    if cache.mean is None:
        cache.emit(k[0], v[0], new)
    result = decode_step(q, k, v, gates, cache, scale=scale, counts=new)
    if mapping is not None:
        cache.count_step(mapping)
    return result
