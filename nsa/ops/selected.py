"""Attention to the tokens of selected blocks (Eq. 12)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from nsa import blocks, library, reference, routing
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.ops.requests import Where, attention_request, attention_shapes, gradient, located, returns_with_lse, widened

NAME = "selected_attention"


def _shapes(x: library.Arguments, keep: bool) -> list[Tensor]:
    return attention_shapes(x["q"], x["v"])[: 2 if keep or x["return_lse"] else 1]


def _gradient(grad: Tensor, results: list[Tensor], x: library.Arguments) -> Sequence[Tensor] | None:
    q, k, v, config = x["q"], x["k"], x["v"], x["config"]
    where = located(NAME, q, x["scale"], x["cu_seqlens"], x["q_start"])
    request = attention_request("selected", q, k, v, config, where, deterministic=x["deterministic"])
    return gradient(request, x["backend"], grad, results, (q, k, v, x["block_indices"], config), where)


@library.operator(_shapes, _gradient, returns_with_lse)
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
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of each query to the positions <= t of its blocks.

    Args:
        q, k, v: [B,T,Hq,Dk], [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv].
        block_indices: int32 [B,T,Hkv,n], relative to the query's own sequence; -1 anywhere is padding.
        config: the sizes.
        scale, cu_seqlens, q_start: as in `compressed_attention`.
        validate: refuse duplicate, future or out-of-range blocks; this waits for the device. False only for
            indices that come from `select_blocks`.
        backend, strict, deterministic, return_lse: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv]; a row of -1 gives exactly 0 with zero gradient. With return_lse also lse [B,T,Hq], at least
        fp32, natural log, -inf for such a row; not differentiable.
    """
    checks.attention(NAME, q, k, v)
    checks.sizes(NAME, config)
    where = located(NAME, q, scale, cu_seqlens, q_start)
    checks.positions(NAME, q, k.shape[1], where["cu_seqlens"], q_start)
    checks.block_indices(NAME, block_indices, q, k.shape[2])
    if validate:
        at = blocks.token_positions(*q.shape[:2], cu_seqlens=where["cu_seqlens"], q_start=q_start)
        blocks.check_block_indices(block_indices, at, config)
    o, lse = attend(q, k, v, block_indices, config, where, backend, strict, deterministic, return_lse)
    if return_lse:
        return o, lse
    library.keep(lse)
    return o


def attend(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, where: Where,
    backend: routing.BackendChoice, strict: bool, deterministic: bool, lse: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o [B,T,Hq,Dv] and lse [B,T,Hq] of arguments that go together; lse may be missing unless it is asked for."""
    request = attention_request("selected", q, k, v, config, where, deterministic=deterministic, lse=lse)
    return routing.run(
        request,
        lambda module: module.selected(q, k, v, block_indices, config, **where, deterministic=request.deterministic),
        backend=backend,
        strict=strict,
        judge=lambda rows: reference.selected_attention(
            widened(q), widened(k), widened(v), block_indices, config, **where, rows=rows
        ),
    )
