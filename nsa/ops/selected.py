"""Attention to the tokens of selected blocks (Eq. 12)."""

from __future__ import annotations

from torch import Tensor

from nsa import blocks, reference, routing
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.ops.eager import eager
from nsa.ops.requests import Where, attention_request, default_scale, repeatable, widened


@eager
def selected_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_indices: Tensor,
    config: NSAConfig = NSAConfig(),
    *,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    validate: bool = True,
    backend: routing.BackendChoice = None,
    strict: bool = False,
    deterministic: bool = False,
) -> Tensor:
    """Attention of each query to the positions <= t of its blocks.

    Args:
        q, k, v: [B,T,Hq,Dk], [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv].
        block_indices: int32 [B,T,Hkv,n], relative to the query's own sequence; -1 anywhere is padding.
        config: the sizes.
        scale, cu_seqlens, q_start: as in `compressed_attention`.
        validate: refuse duplicate, future or out-of-range blocks; this waits for the device. False only for
            indices that come from `select_blocks`.
        backend, strict, deterministic: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv]; a row of -1 gives exactly 0 with zero gradient.
    """
    name = "selected_attention"
    checks.attention(name, q, k, v)
    checks.sizes(name, config)
    cu_seqlens = checks.borders(name, cu_seqlens, q)
    checks.positions(name, q, k.shape[1], cu_seqlens, q_start)
    checks.block_indices(name, block_indices, q, k.shape[2])
    if validate:
        at = blocks.token_positions(*q.shape[:2], cu_seqlens=cu_seqlens, q_start=q_start)
        blocks.check_block_indices(block_indices, at, config)
    deterministic = repeatable(deterministic)
    request = attention_request(
        "selected", q, k, v, config, cu_seqlens=cu_seqlens, q_start=q_start, deterministic=deterministic
    )
    where: Where = {"scale": default_scale(q, scale), "cu_seqlens": cu_seqlens, "q_start": q_start}
    return routing.run(
        request,
        lambda module: module.selected(q, k, v, block_indices, config, **where, deterministic=deterministic),
        backend=backend,
        strict=strict,
        judge=lambda rows: reference.selected_attention(
            widened(q), widened(k), widened(v), block_indices, config, **where, rows=rows
        ),
    )
