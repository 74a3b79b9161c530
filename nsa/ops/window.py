"""Sliding-window attention."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from nsa import library, reference, routing
from nsa.ops import checks
from nsa.ops.requests import Where, attention_request, attention_shapes, gradient, located, returns_with_lse, widened

NAME = "sliding_window_attention"


def _shapes(x: library.Arguments, keep: bool) -> list[Tensor]:
    return attention_shapes(x["q"], x["v"])[: 2 if keep or x["return_lse"] else 1]


def _gradient(grad: Tensor, results: list[Tensor], x: library.Arguments) -> Sequence[Tensor] | None:
    q, k, v = x["q"], x["k"], x["v"]
    where = located(NAME, q, x["scale"], x["cu_seqlens"], x["q_start"])
    request = attention_request("window", q, k, v, None, where, deterministic=x["deterministic"])
    return gradient(request, x["backend"], grad, results, (q, k, v, x["window"]), where)


@library.operator(_shapes, _gradient, returns_with_lse)
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
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of each query to the positions (t - window, t]: `window` keys, its own included.

    Args:
        q, k, v: [B,T,Hq,Dk], [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv].
        window: at least 1.
        scale, cu_seqlens, q_start: as in `compressed_attention`.
        backend, strict, deterministic, return_lse: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv]; with return_lse also lse [B,T,Hq], at least fp32, natural log; not differentiable.
    """
    if isinstance(window, bool) or not isinstance(window, int):
        raise TypeError(f"{NAME}: window must be an integer, got {type(window).__name__}")
    if window < 1:
        raise ValueError(f"{NAME}: window must be at least 1, got {window}")
    checks.attention(NAME, q, k, v)
    where = located(NAME, q, scale, cu_seqlens, q_start)
    checks.positions(NAME, q, k.shape[1], where["cu_seqlens"], q_start)
    o, lse = attend(q, k, v, window, where, backend, strict, deterministic)
    if return_lse:
        return o, lse
    library.keep(lse)
    return o


def attend(
    q: Tensor, k: Tensor, v: Tensor, window: int, where: Where, backend: routing.BackendChoice, strict: bool,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o [B,T,Hq,Dv] and lse [B,T,Hq] of arguments that go together."""
    request = attention_request("window", q, k, v, None, where, deterministic=deterministic)
    return routing.run(
        request,
        lambda module: module.window(q, k, v, window, **where, deterministic=request.deterministic),
        backend=backend,
        strict=strict,
        judge=lambda rows: reference.sliding_window_attention(
            widened(q), widened(k), widened(v), window, **where, rows=rows
        ),
    )
