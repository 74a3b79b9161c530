"""Block scores and the choice of blocks (Eq. 9 to 11)."""

from __future__ import annotations

import torch
from torch import Tensor

from nsa import library, routing
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.ops.requests import attention_request, located

NAME = "select_blocks"


def _shapes(x: library.Arguments, keep: bool) -> list[Tensor]:
    q, k_cmp = x["q"], x["k_cmp"]
    return [q.new_empty(*q.shape[:2], k_cmp.shape[2], x["config"].n_sel, dtype=torch.int32)]


@library.operator(_shapes, differentiable=False)
def select_blocks(
    q: Tensor,
    k_cmp: Tensor,
    config: NSAConfig = NSAConfig(),
    *,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    lse: Tensor | None = None,
    backend: routing.BackendChoice = None,
    strict: bool = False,
) -> Tensor:
    """The blocks that each query and KV head reads: forced ones first, then by score, ties to the lower index.

    Args:
        q, k_cmp, config, scale, cu_seqlens, q_start: as in `compressed_attention`.
        lse: [B,T,Hq] of `compressed_attention` with the same arguments, to save computing it again.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        int32 [B,T,Hkv,n_sel], relative to the query's own sequence, ascending, -1 padded at the end. Not
        differentiable.
    """
    checks.shape(NAME, "q", q, "[B,T,Hq,Dk]")
    checks.shape(NAME, "k_cmp", k_cmp, "[B,Tc,Hkv,Dk]")
    checks.alike(NAME, q=q, k_cmp=k_cmp)
    checks.heads(NAME, q, k_cmp)
    checks.sizes(NAME, config)
    where = located(NAME, q, scale, cu_seqlens, q_start)
    checks.compressed_positions(NAME, q, k_cmp.shape[1], config, where["cu_seqlens"], q_start)
    if lse is not None and lse.shape != q.shape[:3]:
        raise ValueError(f"{NAME}: lse must have the shape {list(q.shape[:3])}, got {list(lse.shape)}")
    q, k_cmp = q.detach(), k_cmp.detach()
    return routing.run(
        attention_request("select", q, k_cmp, None, config, where),
        lambda module: module.select(q, k_cmp, config, **where, lse=lse),
        backend=backend,
        strict=strict,
    )
