"""Attention to compressed tokens (Eq. 8)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from nsa import library, reference, routing
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.ops.requests import attention_request, attention_shapes, gradient, located, widened

NAME = "compressed_attention"


def _shapes(x: library.Arguments, keep: bool) -> list[Tensor]:
    return attention_shapes(x["q"], x["v_cmp"])


def _gradient(grad: Tensor, results: list[Tensor], x: library.Arguments) -> Sequence[Tensor] | None:
    inputs = x["q"], x["k_cmp"], x["v_cmp"], x["config"]
    where = located(NAME, x["q"], x["scale"], x["cu_seqlens"], x["q_start"])
    request = attention_request("compressed", *inputs, where, deterministic=x["deterministic"])
    return gradient(request, x["backend"], grad, results, inputs, where)


@library.operator(_shapes, _gradient, returns=lambda results, _: tuple(results[:2]))
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
    checks.attention(NAME, q, k_cmp, v_cmp)
    checks.sizes(NAME, config)
    where = located(NAME, q, scale, cu_seqlens, q_start)
    checks.compressed_positions(NAME, q, k_cmp.shape[1], config, where["cu_seqlens"], q_start)
    request = attention_request("compressed", q, k_cmp, v_cmp, config, where, deterministic=deterministic)
    return routing.run(
        request,
        lambda module: module.compressed(q, k_cmp, v_cmp, config, **where, deterministic=request.deterministic),
        backend=backend,
        strict=strict,
        judge=lambda rows: reference.compressed_attention(
            widened(q), widened(k_cmp), widened(v_cmp), config, **where, rows=rows
        )[0],
    )
