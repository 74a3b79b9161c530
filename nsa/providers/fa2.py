"""FlashAttention-2: the sliding window, and compressed attention where causal attention expresses it exactly.

Through the package flash-attn where it is installed, or flash-attn-4, which computes the same; else through torch's own
flash varlen attention. Which one is `provider().name`; `python -m nsa.fa2_probe` prints it.

Compressed attention by causal attention: query t sees (t - l + 1) // d + 1 compressed tokens, so among the queries
of one phase, t = l-1 + i*d + phase, query i sees exactly the compressed tokens 0..i. The d phases of a sequence are d
causal sequences of equal query and key length.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nsa import blocks, flags
from nsa.config import NSAConfig
from nsa.providers.flash import Flash, Varlen, provider
from nsa.routing.request import How, Request

DTYPES = (torch.float16, torch.bfloat16)


def supports(request: Request) -> str | None:
    """Why FlashAttention-2 cannot run this request."""
    flash = provider()
    if isinstance(flash, str):
        return flash
    if request.device.type != "cuda":
        return "FlashAttention-2 needs a CUDA device"
    if request.dtype not in DTYPES:
        return f"FlashAttention-2 needs fp16 or bf16, not {request.dtype}"
    if request.dk != request.dv:
        return f"FlashAttention-2 needs dk equal to dv, not {request.dk} and {request.dv}"
    if request.dk % 8 or request.dk > 256:
        return f"FlashAttention-2 needs a head dimension that is a multiple of 8 up to 256, not {request.dk}"
    if request.offset:
        return "FlashAttention-2 is called with as many queries as keys; q_start or cu_seqlens_k says otherwise"
    if request.deterministic and not flash.deterministic:
        return f"{flash.name} has no deterministic backward"
    return _entry_point(request, flash)


def _entry_point(request: Request, flash: Flash) -> str | None:
    """Why NSA_FA2_FORCE_DENSE or NSA_FA2_FORCE_VARLEN cannot be obeyed."""
    active = flags.current()
    if active.fa2_force_dense and active.fa2_force_varlen:
        return "NSA_FA2_FORCE_DENSE and NSA_FA2_FORCE_VARLEN exclude each other"
    if active.fa2_force_dense and flash.dense is None:
        return f"NSA_FA2_FORCE_DENSE=1, and {flash.name} has no dense entry point"
    if active.fa2_force_dense and (request.packed or request.operation == "compressed"):
        return "NSA_FA2_FORCE_DENSE=1, and this request is packed"
    return None


def window(q: Tensor, k: Tensor, v: Tensor, window: int, how: How) -> tuple[Tensor, Tensor]:
    """Attention to the last `window` positions: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    flash = _provider()
    if flash.dense is not None and how.cu_seqlens is None and not flags.current().fa2_force_varlen:
        return flash.dense(q, k, v, how.scale, window - 1, how.deterministic)
    batch, tokens = q.shape[:2]
    borders = _equal_borders(batch, tokens, q.device) if how.cu_seqlens is None else how.cu_seqlens
    longest = int(borders.diff().max()) if borders.numel() > 1 else 0
    call = Varlen(borders, longest, how.scale, window - 1, how.deterministic)
    o, lse = flash.varlen(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), call)
    return o.unflatten(0, (batch, tokens)), lse.detach().unflatten(0, (batch, tokens))


def compressed(q: Tensor, k_cmp: Tensor, v_cmp: Tensor, config: NSAConfig, how: How) -> tuple[Tensor, Tensor]:
    """Attention to the visible compressed tokens, phase by phase: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    plan = phases(q.shape[0], q.shape[1], config, how.cu_seqlens, q.device)
    queries, keys, values = q.flatten(0, 1), k_cmp.flatten(0, 1)[plan.keys], v_cmp.flatten(0, 1)[plan.keys]
    asked = queries[plan.queries]
    if plan.longest:
        call = Varlen(plan.borders, plan.longest, how.scale, None, how.deterministic)
        found, found_lse = _provider().varlen(asked, keys, values, call)
    else:
        found, found_lse = asked, asked.new_zeros(asked.shape[:2], dtype=torch.float32)
    where = plan.queries[plan.real]
    o = torch.zeros_like(queries).index_copy(0, where, found[plan.real])
    lse = queries.new_full(queries.shape[:2], -torch.inf, dtype=torch.float32)
    lse = lse.index_copy(0, where, found_lse[plan.real].detach())
    return o.unflatten(0, q.shape[:2]), lse.unflatten(0, q.shape[:2])


@dataclass(frozen=True)
class Phases:
    """The packed causal sequences of all phases: row r asks query `queries[r]` and stands beside key `keys[r]`.

    Rows that are not `real` fill a phase whose last query is past the sequence's end; they ask another query, and
    their output is dropped. `borders` int32 [N+1], `longest` is the longest sequence.
    """

    queries: Tensor
    keys: Tensor
    real: Tensor
    borders: Tensor
    longest: int


def phases(batch: int, tokens: int, config: NSAConfig, cu_seqlens: Tensor | None, device: torch.device) -> Phases:
    """The phases of every sequence; indices into q flattened to [B*T] and k_cmp flattened to [B*Tc]."""
    cu = _equal_borders(batch, tokens, torch.device("cpu")) if cu_seqlens is None else cu_seqlens.cpu()
    cmp_borders = blocks.cu_seqlens_cmp(cu, config).tolist()
    queries, keys, last, lengths = [], [], [], [0]
    for (first, end), (cmp_first, cmp_end) in zip(pairwise(cu.tolist()), pairwise(cmp_borders), strict=True):
        step = torch.arange(cmp_end - cmp_first, device="cpu")
        for phase in range(config.d if len(step) else 0):
            queries.append(first + config.l - 1 + step * config.d + phase)
            keys.append(cmp_first + step)
            last.append(torch.full_like(step, end - 1))
            lengths.append(len(step))
    query, key, limit = (
        torch.cat([torch.zeros(0, dtype=torch.int64, device="cpu"), *x]).to(device) for x in (queries, keys, last)
    )
    borders = torch.tensor(lengths, device="cpu").cumsum(0).to(device, torch.int32)
    return Phases(torch.minimum(query, limit), key, query <= limit, borders, max(lengths))


def _equal_borders(batch: int, tokens: int, device: torch.device) -> Tensor:
    return torch.arange(batch + 1, device=device, dtype=torch.int32) * tokens


def _provider() -> Flash:
    flash = provider()
    if isinstance(flash, str):
        raise RuntimeError(flash)
    return flash
