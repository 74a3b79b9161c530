"""Native Sparse Attention whole: the branches composed, or one fused function where a backend has it."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

import torch
from torch import Tensor

from nsa import blocks, reference, routing
from nsa.bounded import Bounded
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.ops.combine import gated_combine
from nsa.ops.compressed import compressed_attention
from nsa.ops.compression import compress
from nsa.ops.eager import eager
from nsa.ops.requests import Where, attention_request, default_scale, repeatable, widened
from nsa.ops.selected import selected_attention
from nsa.ops.selection import select_blocks
from nsa.ops.window import sliding_window_attention

NAME = "nsa_attention"
Triple = checks.Triple


class Plain(TypedDict):
    """How an operation is routed."""

    backend: routing.BackendChoice
    strict: bool


@eager
def nsa_attention(
    q: Tensor,
    k: Tensor | Triple,
    v: Tensor | Triple,
    gates: Tensor,
    config: NSAConfig = NSAConfig(),
    *,
    compressed: tuple[Tensor, Tensor] | None = None,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    block_indices: Tensor | None = None,
    backend: routing.BackendChoice = None,
    strict: bool = False,
    deterministic: bool = False,
) -> Tensor:
    """Compressed, selected and window attention, summed under the gates (Eq. 5).

    Args:
        q: [B,T,Hq,Dk].
        k, v: one tensor [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv] for all branches, or a triple (cmp, sel, win).
        gates: [B,T,Hq,3] in (cmp, sel, win) order, already activated.
        config: the sizes.
        compressed: (k_cmp, v_cmp) [B,Tc,Hkv,D*] instead of the mean of the cmp keys and values.
        scale: of the logits; default Dk**-0.5.
        cu_seqlens: borders of packed sequences, int32 or int64 [N+1]; B is 1. Padded batches: pack them.
        q_start: integers [B], the position of each entry's first query when k and v hold earlier tokens too
            (chunked prefill); default 0, and then T = Tk.
        block_indices: int32 [B,T,Hkv,n] instead of the selection; checked.
        backend: a backend for every operation that it has, or a mapping from operation to backend; one that cannot
            run is a `nsa.routing.RoutingError`.
        strict: so is what cannot run of a flag's request, or of the device's own order.
        deterministic: gradients are bitwise repeatable, as `torch.use_deterministic_algorithms` asks for too. On
            sm_90 that takes longer (docs/kernels.md).

    Returns:
        o [B,T,Hq,Dv].

    Raises:
        ValueError: arguments that do not go together; the sentence says which.
        TypeError: an argument of another type.
    """
    keys, values = checks.triple(NAME, "k", k), checks.triple(NAME, "v", v)
    cu_seqlens, deterministic = checks.borders(NAME, cu_seqlens, q), repeatable(deterministic)
    request = _request(q, keys, values, gates, config, compressed, block_indices, cu_seqlens, q_start, deterministic)
    where: Where = {"scale": default_scale(q, scale), "cu_seqlens": cu_seqlens, "q_start": q_start}
    choice = routing.per_operation(backend)
    if backend is None and _dense_instead(request, k, v, compressed, block_indices):  # an argument is stronger
        return routing.run(
            replace(request, operation="dense"),
            lambda module: module.dense(q, keys[1], values[1], scale=scale, cu_seqlens=cu_seqlens),
            strict=strict,
        )
    whole = routing.run_whole(
        request,
        lambda module: module.attention(
            q, keys, values, gates, config, compressed=compressed, block_indices=block_indices, **where,
            deterministic=deterministic,
        ),
        backend=choice,
        strict=strict,
        judge=lambda rows: reference.nsa_attention(
            widened(q), _widened(keys), _widened(values), widened(gates), config, **where,
            compressed=compressed and (widened(compressed[0]), widened(compressed[1])),
            block_indices=block_indices, rows=rows,
        ),
    )  # fmt: skip
    if whole is not None:
        return whole
    return _composed(q, keys, values, gates, config, compressed, block_indices, where, choice, strict, deterministic)


def _composed(
    q: Tensor,
    keys: Triple,
    values: Triple,
    gates: Tensor,
    config: NSAConfig,
    compressed: tuple[Tensor, Tensor] | None,
    block_indices: Tensor | None,
    where: Where,
    choice: dict[str, str],
    strict: bool,
    deterministic: bool,
) -> Tensor:
    """The public operations one after another."""
    plain: Plain = {"backend": choice, "strict": strict}
    if compressed is None:
        k_cmp = compress(keys[0], config, cu_seqlens=where["cu_seqlens"], **plain)
        v_cmp = compress(values[0], config, cu_seqlens=where["cu_seqlens"], **plain)
    else:
        k_cmp, v_cmp = compressed
    o_cmp, lse = compressed_attention(q, k_cmp, v_cmp, config, **where, **plain, deterministic=deterministic)
    if block_indices is None:
        block_indices = select_blocks(q, k_cmp, config, lse=lse, **where, **plain)
    o_sel = selected_attention(
        q, keys[1], values[1], block_indices, config, validate=False, **where, **plain, deterministic=deterministic
    )
    o_win = sliding_window_attention(q, keys[2], values[2], config.w, **where, **plain, deterministic=deterministic)
    return gated_combine(o_cmp, o_sel, o_win, gates, **plain)


def _widened(branches: Triple) -> Triple:
    cmp, sel, win = branches
    return widened(cmp), widened(sel), widened(win)


_agreed: Bounded[tuple[object, ...], routing.Request] = Bounded(1024)


def _request(
    q: Tensor,
    keys: Triple,
    values: Triple,
    gates: Tensor,
    config: NSAConfig,
    compressed: tuple[Tensor, Tensor] | None,
    block_indices: Tensor | None,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
    deterministic: bool,
) -> routing.Request:
    """The facts of a call whose arguments go together: looked at once, where they do so whatever the tensors hold."""
    values_matter = not (cu_seqlens is None and q_start is None and block_indices is None)
    try:
        given = () if compressed is None else compressed
        inputs = q, *keys, *values, gates, *given
        names = tuple(map(id, inputs))  # the same tensor is often given again
        layouts = tuple((x.shape, x.dtype, x.device, x.requires_grad) for x in dict.fromkeys(inputs))
        shared = tuple(map(names.index, names))
        key = config, deterministic, torch.is_grad_enabled(), compressed is None, shared, layouts
        found = None if values_matter else _agreed.get(key)
    except (AttributeError, TypeError):  # something is of another type: it is said which
        _check(q, keys, values, gates, config, compressed, cu_seqlens, q_start, block_indices)
        raise
    if found is not None:
        return found
    _check(q, keys, values, gates, config, compressed, cu_seqlens, q_start, block_indices)
    found = attention_request(
        "attention", q, keys[1], values[1], config, cu_seqlens=cu_seqlens, q_start=q_start,
        deterministic=deterministic, others=(*keys, *values, gates, *given),
    )  # fmt: skip
    if not values_matter:
        _agreed[key] = found
    return found


def _check(
    q: Tensor,
    keys: Triple,
    values: Triple,
    gates: Tensor,
    config: NSAConfig,
    compressed: tuple[Tensor, Tensor] | None,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
    block_indices: Tensor | None,
) -> None:
    checks.sizes(NAME, config)
    for name, branches in (("k", keys), ("v", values)):
        for x in branches:
            checks.tensor(NAME, name, x)
    for k, v in dict.fromkeys(zip(keys, values, strict=True)):  # branches may share theirs: once is enough
        checks.attention(NAME, q, k, v)
    for name, branches in (("k", keys), ("v", values)):
        if len({x.shape for x in branches}) > 1:
            shapes = [list(x.shape) for x in branches]
            raise ValueError(f"{NAME}: {name} of the three branches must have one shape, got {shapes}")
    checks.positions(NAME, q, keys[0].shape[1], cu_seqlens, q_start)
    checks.alike(NAME, q=q, gates=gates)
    checks.gates(NAME, gates, q)
    if block_indices is not None:
        checks.block_indices(NAME, block_indices, q, keys[1].shape[2])
        at = blocks.token_positions(*q.shape[:2], cu_seqlens=cu_seqlens, q_start=q_start)
        blocks.check_block_indices(block_indices, at, config)
    if compressed is not None:
        checks.compressed(NAME, q, keys[0], values[0], compressed, config, cu_seqlens, q_start)


def _dense_instead(
    request: routing.Request,
    k: Tensor | Triple,
    v: Tensor | Triple,
    compressed: tuple[Tensor, Tensor] | None,
    block_indices: Tensor | None,
) -> bool:
    """Dense attention is a choice where all branches share K and V and nothing about them is given."""
    shared = isinstance(k, Tensor) and isinstance(v, Tensor)
    plain = shared and compressed is None and block_indices is None and not request.offset
    return plain and routing.prefers_dense(request)
