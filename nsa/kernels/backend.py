"""The Triton backend: the kernels of `nsa.kernels` as the operations of `nsa.routing.registry`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import triton
from torch import Tensor

from nsa import library
from nsa.config import NSAConfig
from nsa.host import to_device
from nsa.kernels import attention as whole
from nsa.kernels.combine import GatedCombine
from nsa.kernels.common.tiles import pad_group
from nsa.kernels.compression.mlp import MlpOfSpans
from nsa.kernels.compression.weighted import SpanSums
from nsa.kernels.decode.step import cached_attention, decode_step
from nsa.kernels.ranges import compressed as compressed_kernels
from nsa.kernels.ranges import fused
from nsa.kernels.ranges import window as window_kernels
from nsa.kernels.rotary import Rotate
from nsa.kernels.selected.attention import gradients, selected_attention
from nsa.kernels.selection.select import select_blocks
from nsa.phi import MlpPhi, Phi
from nsa.routing import Request

if TYPE_CHECKING:
    from nsa.cache import NSACache
    from nsa.ops.attention import Call

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
OLDEST = (3, 0)
OLDEST_HOPPER_GRADIENT = (3, 3)  # before, selected gradients compile unpipelined, which later versions got wrong there
LARGEST_HEAD = 256
LARGEST_GROUP = 64
LARGEST_GROUP_FP32 = 32
"""One token's rows of more query heads would not fit on chip in fp32, beside their gradient."""
Triple = tuple[Tensor, Tensor, Tensor]
Function = TypeVar("Function", bound=Callable[..., Any])


# --- what can run ---


def supports(request: Request) -> str | None:
    """None, or why this request cannot run on these kernels."""
    checks = (_version(request), _device(request), _dtype(request), _shape(request))
    return next((reason for reason in checks if reason is not None), None)


def _version(request: Request) -> str | None:
    found = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if found < OLDEST:
        return f"Triton {triton.__version__} is older than 3.0"
    selecting = request.operation in ("selected", "attention") and request.needs_grad
    if selecting and found < OLDEST_HOPPER_GRADIENT and (request.capability or (0, 0)) >= (9, 0):
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
    if pad_group(request.group_size) > _most_heads(request):
        return f"{request.group_size} query heads share a KV head, more than a tile's {_most_heads(request)}"
    return None


def _most_heads(request: Request) -> int:
    """Query heads of one KV head that the kernels' tiles hold."""
    small = request.device.type != "cuda" or request.operation in ("combine", "decode")
    return LARGEST_GROUP if small or request.dtype != torch.float32 else LARGEST_GROUP_FP32


def gradient(request: Request) -> str:
    """How the gradient of the compressed and of the window branch is computed."""
    if request.operation not in ("compressed", "window", "attention"):
        return ""
    major, minor = request.capability or (0, 0)
    target = f"sm_{major}{minor}" if request.capability else fused.INTERPRETER
    facts = request.dtype, request.dk, request.dv, request.group_size, request.deterministic
    reason = fused.against(target, *facts)
    return "one kernel for dq, dk and dv" if reason is None else f"dq apart from dk and dv: {reason}"


# --- the operations ---


def _on_its_device(function: Function) -> Function:
    """Launch on the device of the first argument, whichever is current."""

    @wraps(function)
    def guarded(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        with _on(x):
            return function(x, *args, **kwargs)

    return guarded  # type: ignore[return-value]


_HERE = nullcontext()


def _on(x: Tensor) -> AbstractContextManager[Any]:
    """Launch on the device of x inside the block."""
    return torch.cuda.device(x.device) if x.is_cuda and x.device.index != torch.cuda.current_device() else _HERE


@_on_its_device
def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Each head of x [B,T,H,D] turned by its position."""
    return Rotate.apply(x, positions, base)


@_on_its_device
def compress(x: Tensor, config: NSAConfig, *, phi: Phi | None, cu_seqlens: Tensor | None) -> Tensor:
    """Compressed tokens [B,Tc,Hkv,D] of x [B,T,Hkv,D]."""
    if isinstance(phi, MlpPhi):
        return MlpOfSpans.apply(x, config, cu_seqlens, phi.position, phi.w_in, phi.b_in, phi.w_out, phi.b_out)
    return SpanSums.apply(x, None if phi is None else phi.weight, config, cu_seqlens)


@_on_its_device
def compressed(
    q: Tensor,
    k_cmp: Tensor,
    v_cmp: Tensor,
    config: NSAConfig,
    *,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:
    """Attention to the visible compressed tokens: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    return compressed_kernels.CompressedAttention.apply(
        q, k_cmp, v_cmp, config, scale, cu_seqlens, q_start, deterministic
    )


@_on_its_device
def select(
    q: Tensor,
    k_cmp: Tensor,
    config: NSAConfig,
    *,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
    lse: Tensor | None,
) -> Tensor:
    """Chosen blocks, int32 [B,T,Hkv,n_sel]."""
    return select_blocks(q, k_cmp, config, scale, cu_seqlens, lse, q_start)


@_on_its_device
def selected(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_indices: Tensor,
    config: NSAConfig,
    *,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:
    """Attention to the positions <= t of the chosen blocks: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    return selected_attention(q, k, v, block_indices, config, scale, cu_seqlens, q_start)


@_on_its_device
def window(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    *,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:
    """Attention to the last `window` positions, the query's own included: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    return window_kernels.WindowAttention.apply(q, k, v, window, scale, cu_seqlens, q_start, deterministic)


@_on_its_device
def compressed_gradient(
    do: Tensor, o: Tensor, lse: Tensor, q: Tensor, k_cmp: Tensor, v_cmp: Tensor, config: NSAConfig, *,
    scale: float, cu_seqlens: Tensor | None, q_start: Tensor | None, deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k_cmp and v_cmp, from results of `compressed`."""
    where = compressed_kernels.ranges_of(q, k_cmp, config, cu_seqlens, q_start)
    return fused.gradients(do, q, k_cmp, v_cmp, o, lse, where, scale, deterministic)


@_on_its_device
def selected_gradient(
    do: Tensor, o: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, *,
    scale: float, cu_seqlens: Tensor | None, q_start: Tensor | None, deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v, from results of `selected`; always deterministic."""
    return gradients(do, o, lse, q, k, v, block_indices, config, scale, cu_seqlens, q_start)


@_on_its_device
def window_gradient(
    do: Tensor, o: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, window: int, *,
    scale: float, cu_seqlens: Tensor | None, q_start: Tensor | None, deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v, from results of `window`."""
    where = window_kernels.ranges_of(q, k, window, cu_seqlens, q_start)
    return fused.gradients(do, q, k, v, o, lse, where, scale, deterministic)


@_on_its_device
def combine(o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, gates: Tensor) -> Tensor:
    """Gated sum of the branches [B,T,Hq,Dv]."""
    return GatedCombine.apply(o_cmp, o_sel, o_win, gates)


def attention(call: Call, lse: bool) -> list[Tensor]:
    """The whole operation: o; with `lse` those of the branches; then what a gradient needs, where it is kept."""
    with _on(call.q):
        return whole.attention(call, lse=lse, keep=library.keeping() is not None)


def attention_gradient(grad: Tensor, results: list[Tensor], call: Call) -> list[Tensor]:
    """Gradients of q, of the given k, of the given v (one or three each), of the gates, of the given means."""
    with _on(call.q):
        return whole.gradient(grad, results, call)


@_on_its_device
def decode(
    q: Tensor,
    gates: Tensor,
    cache: NSACache,
    *,
    scale: float,
    branches: Collection[str],
    block_indices: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of the last token of each sequence: o [B,1,Hq,Dv], reads [B,Hkv,3], blocks [B,1,Hkv,n_sel]."""
    return cached_attention(q, gates, cache, scale=scale, branches=branches, block_indices=block_indices)


@_on_its_device
def step(
    q: Tensor,
    k: Triple,
    v: Triple,
    gates: Tensor,
    cache: NSACache,
    *,
    counts: Sequence[int] | Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Append a token of each sequence and attend, in three kernels; a learned map makes compressed tokens before."""
    mapping, new = None, counts
    if not isinstance(counts, Tensor):  # else a graph is captured
        mapping = cache.slot_mapping(1, counts)
        cache.reserve(mapping.ends)
        new = None if all(counts) else to_device(torch.tensor(counts, dtype=torch.int32), q.device)
    if cache.mean is None:
        cache.emit(k[0], v[0], new)
    result = decode_step(q, k, v, gates, cache, scale=scale, counts=new)
    if mapping is not None:
        cache.count_step(mapping)
    return result
