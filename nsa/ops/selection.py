"""Block scores and the choice of blocks (Eq. 9 to 11)."""

from __future__ import annotations

from torch import Tensor

from nsa import routing
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.ops.eager import eager
from nsa.ops.requests import Where, attention_request, default_scale


@eager
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
    name = "select_blocks"
    checks.shape(name, "q", q, "[B,T,Hq,Dk]")
    checks.shape(name, "k_cmp", k_cmp, "[B,Tc,Hkv,Dk]")
    checks.alike(name, q=q, k_cmp=k_cmp)
    checks.heads(name, q, k_cmp)
    checks.sizes(name, config)
    cu_seqlens = checks.borders(name, cu_seqlens, q)
    checks.compressed_positions(name, q, k_cmp.shape[1], config, cu_seqlens, q_start)
    if lse is not None and lse.shape != q.shape[:3]:
        raise ValueError(f"{name}: lse must have the shape {list(q.shape[:3])}, got {list(lse.shape)}")
    q, k_cmp = q.detach(), k_cmp.detach()
    where: Where = {"scale": default_scale(q, scale), "cu_seqlens": cu_seqlens, "q_start": q_start}
    return routing.run(
        attention_request("select", q, k_cmp, None, config, cu_seqlens=cu_seqlens, q_start=q_start),
        lambda module: module.select(q, k_cmp, config, **where, lse=lse),
        backend=backend,
        strict=strict,
    )
