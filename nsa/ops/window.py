"""Sliding-window attention."""

from __future__ import annotations

from torch import Tensor

from nsa import reference, routing
from nsa.ops import checks
from nsa.ops.eager import eager
from nsa.ops.requests import Where, attention_request, default_scale, repeatable, widened


@eager
def sliding_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    *,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    backend: routing.BackendChoice = None,
    strict: bool = False,
    deterministic: bool = False,
) -> Tensor:
    """Attention of each query to the positions (t - window, t]: `window` keys, its own included.

    Args:
        q, k, v: [B,T,Hq,Dk], [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv].
        window: at least 1.
        scale, cu_seqlens, q_start: as in `compressed_attention`.
        backend, strict, deterministic: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv].
    """
    name = "sliding_window_attention"
    if isinstance(window, bool) or not isinstance(window, int):
        raise TypeError(f"{name}: window must be an integer, got {type(window).__name__}")
    if window < 1:
        raise ValueError(f"{name}: window must be at least 1, got {window}")
    checks.attention(name, q, k, v)
    cu_seqlens = checks.borders(name, cu_seqlens, q)
    checks.positions(name, q, k.shape[1], cu_seqlens, q_start)
    deterministic = repeatable(deterministic)
    request = attention_request(
        "window", q, k, v, None, cu_seqlens=cu_seqlens, q_start=q_start, deterministic=deterministic
    )
    where: Where = {"scale": default_scale(q, scale), "cu_seqlens": cu_seqlens, "q_start": q_start}
    return routing.run(
        request,
        lambda module: module.window(q, k, v, window, **where, deterministic=deterministic),
        backend=backend,
        strict=strict,
        judge=lambda rows: reference.sliding_window_attention(
            widened(q), widened(k), widened(v), window, **where, rows=rows
        ),
    )
