"""Attention to compressed tokens (Eq. 8)."""

from __future__ import annotations

from torch import Tensor

from nsa import reference, routing
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.ops.eager import eager
from nsa.ops.requests import Where, attention_request, default_scale, repeatable, widened


@eager
def compressed_attention(
    q: Tensor,
    k_cmp: Tensor,
    v_cmp: Tensor,
    config: NSAConfig = NSAConfig(),
    *,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    backend: routing.BackendChoice = None,
    strict: bool = False,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention of each query to the compressed tokens it sees: i*d + l - 1 <= t.

    Args:
        q: [B,T,Hq,Dk].
        k_cmp, v_cmp: [B,Tc,Hkv,Dk], [B,Tc,Hkv,Dv], as `compress` makes them.
        config: the sizes.
        scale: of the logits; default Dk**-0.5.
        cu_seqlens: borders of packed queries, int32 or int64 [N+1]; B is 1.
        q_start: integers [B], the position of each entry's first query (chunked prefill, decode); default 0.
        backend, strict, deterministic: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv], exactly 0 with zero gradient where nothing is visible, and
        lse [B,T,Hq], at least fp32, natural log, -inf there; not differentiable.
    """
    name = "compressed_attention"
    checks.attention(name, q, k_cmp, v_cmp)
    checks.sizes(name, config)
    cu_seqlens = checks.borders(name, cu_seqlens, q)
    checks.compressed_positions(name, q, k_cmp.shape[1], config, cu_seqlens, q_start)
    deterministic = repeatable(deterministic)
    request = attention_request(
        "compressed", q, k_cmp, v_cmp, config,
        cu_seqlens=cu_seqlens, q_start=q_start, deterministic=deterministic,
    )  # fmt: skip
    where: Where = {"scale": default_scale(q, scale), "cu_seqlens": cu_seqlens, "q_start": q_start}
    return routing.run(
        request,
        lambda module: module.compressed(q, k_cmp, v_cmp, config, **where, deterministic=deterministic),
        backend=backend,
        strict=strict,
        judge=lambda rows: reference.compressed_attention(
            widened(q), widened(k_cmp), widened(v_cmp), config, **where, rows=rows
        )[0],
    )
