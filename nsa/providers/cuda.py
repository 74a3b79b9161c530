"""The experimental CUDA selection, forward only, behind one build switch: NSA_BUILD_CUDA=1 compiles it with nvcc.

It is the seeds' experiment kept as an experiment: one warp for each query head, no tensor cores. Nothing prefers it;
NSA_USE_CUDA_SEL=1 or backend="cuda" asks for it.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.utils import cpp_extension

from nsa import blocks, flags
from nsa.config import NSAConfig
from nsa.routing.request import How, Request

SOURCE = Path(__file__).with_name("selected.cu")
MOST_DIM = 256
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def supports(request: Request) -> str | None:
    """Why the CUDA selection cannot run this request."""
    if request.lse:
        return "the CUDA selection gives no log-sum-exps"
    if not flags.current().build_cuda:
        return "the CUDA selection is not built (NSA_BUILD_CUDA=1 compiles it with nvcc)"
    if cpp_extension.CUDA_HOME is None:
        return "the CUDA selection cannot be built: no CUDA toolkit (nvcc) was found"
    if request.device.type != "cuda":
        return "the CUDA selection needs a CUDA device"
    if request.needs_grad:
        return "the CUDA selection has no backward"
    if request.dtype not in DTYPES:
        return f"the CUDA selection needs fp32, fp16 or bf16, not {request.dtype}"
    if request.packed and request.offset:
        return "the CUDA selection takes the same borders for queries and keys; cu_seqlens_k says otherwise"
    if max(request.dk, request.dv) > MOST_DIM:
        return f"the CUDA selection needs head dimensions up to {MOST_DIM}, not {request.dk} and {request.dv}"
    return None


@lru_cache
def _extension() -> ModuleType:
    """The compiled extension; the first call compiles it, which takes a minute or more."""
    return cpp_extension.load(name="nsa_cuda_selected", sources=[str(SOURCE)], extra_cuda_cflags=["-O3"])


def selected(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, how: How
) -> tuple[Tensor, None]:
    """Attention to the positions <= t of the chosen blocks: o [B,T,Hq,Dv], and no lse. Always deterministic."""
    batch, tokens = q.shape[:2]
    at = blocks.token_positions(batch, tokens, cu_seqlens=how.cu_seqlens, q_start=how.q_start).to(q.device)
    first_key = torch.zeros_like(at) if how.cu_seqlens is None else torch.arange(tokens, device=q.device) - at
    tensors = (x.contiguous() for x in (q, k, v, block_indices.to(torch.int32), at, first_key))
    return _extension().selected(*tensors, config.l_sel, how.scale), None
