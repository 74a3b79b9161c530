"""Attention through a cache: chunks of a prompt, then one token at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from nsa import checks, flags, library, reference, routing
from nsa.blocks import num_compressed
from nsa.cache import CACHES, Branches, NSACache, Recent, Triple
from nsa.config import BRANCHES
from nsa.functional import (
    compressed_attention,
    gated_combine,
    nsa_attention,
    select_blocks,
    selected_attention,
    sliding_window_attention,
)
from nsa.gradient import no_gradient
from nsa.host import to_device
from nsa.operations import default_scale, widened
from nsa.plans import Key, Plan, layout
from nsa.serving.slot_mapping import SlotMapping

NAME = "nsa_decode"
MOST_STEPS = 16
"""Kinds of steps that a cache keeps plans of."""

Stepped = tuple[Tensor, Tensor, Tensor]
"""o, reads, blocks."""


@library.in_graphs
def nsa_decode(
    q: Tensor,
    k: Branches,
    v: Branches,
    gates: Tensor,
    cache: NSACache,
    *,
    counts: Sequence[int] | Tensor | None = None,
    scale: float | None = None,
    backend: routing.BackendChoice = None,
    strict: bool = False,
) -> Tensor:
    """Append new tokens to the cache, then attend: the outputs of `nsa_attention` at their positions.

    Args:
        q: [B,T,Hq,Dk]; T = 1 is a decode step, whose reads the cache counts, more is a chunk of a prompt.
        k, v: one tensor [B,T,Hkv,Dk], [B,T,Hkv,Dv] for all branches, or a triple (cmp, sel, win).
        gates: [B,T,Hq,3] in (cmp, sel, win) order, already activated.
        cache: grows by the new tokens. Its config holds the sizes, its compressor makes compressed tokens.
        counts: integers [B]: of entry b only the first counts[b] tokens are real, the rest is padding.
        scale: of the logits; default Dk**-0.5.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv], 0 for padding. Not differentiable: a backward pass through it is an error.

    On the Triton backend a step of one token never waits for the device and can be captured in a CUDA graph, if the
    cache has room (`NSACache.reserve`) and one step ran before.
    Replays append to the cache; `NSACache.advance` tells its host side. `counts` is then None or int32 on the device.

    Raises:
        ValueError: arguments that do not go together, or do not fit the cache.
        TypeError: an argument of another type.
    """
    _check_cache(NAME, cache)
    if library.intercepted((q, k, v, gates)):
        numbers, tensor = (None, counts) if isinstance(counts, Tensor) else (counts and list(counts), None)
        branches, choice = library.KINDS["Tensor | Triple"].encode, library.KINDS["routing.BackendChoice"].encode
        return torch.ops.nsa.decode(  # type: ignore[no-any-return]
            q, branches(k), branches(v), gates, cache.lengths, cache.handle, numbers, tensor, scale, choice(backend),
            strict,
        )  # fmt: skip
    if library.any_autocast() and library.autocast_dtype(q.device) is not None:
        q, k, v, gates = library.cast((q, k, v, gates), cache.selected.shaped[0].dtype)
    with torch.no_grad():
        o = _decode(q, k, v, gates, cache, counts, scale, backend, strict)
    return no_gradient(o, q, k, v, gates)


# --- the operator ---

SCHEMA = """decode(
    Tensor q, Tensor[] k, Tensor[] v, Tensor gates, Tensor(a!) lengths, SymInt cache, int[]? counts,
    Tensor? counts_tensor, float? scale, str[] backend, bool strict
) -> Tensor"""
"""A cache is no tensor: the operator knows it by `NSACache.handle`, and writes to its `lengths`, among others."""


def _operator(
    q: Tensor, k: list[Tensor], v: list[Tensor], gates: Tensor, lengths: Tensor, handle: int, counts: list[int] | None,
    counts_tensor: Tensor | None, scale: float | None, backend: list[str], strict: bool,
) -> Tensor:  # fmt: skip
    cache, branches = CACHES[handle], library.KINDS["Tensor | Triple"].decode
    choice = library.KINDS["routing.BackendChoice"].decode(backend)
    given = counts if counts_tensor is None else counts_tensor
    o = _decode(q, branches(k), branches(v), gates, cache, given, scale, choice, strict)
    if lengths.data_ptr() != cache.lengths.data_ptr():  # a copy, which is written back to the cache's own
        lengths.copy_(cache.lengths)
    return o


def _shapes(q: Tensor, k: list[Tensor], v: list[Tensor], *others: object) -> Tensor:
    return q.new_empty(*q.shape[:3], v[0].shape[-1])


def _without_gradient(q: Tensor, k: list[Tensor], v: list[Tensor], gates: Tensor, *others: object) -> Tensor:
    with library.below_autograd():
        o = torch.ops.nsa.decode(q, k, v, gates, *others)
    return no_gradient(o, q, *k, *v, gates)


def _in_autocast(
    q: Tensor, k: list[Tensor], v: list[Tensor], gates: Tensor, lengths: Tensor, handle: int, *others: object
) -> Tensor:
    """In the cache's dtype."""
    inputs = library.cast((q, k, v, gates), CACHES[handle].selected.shaped[0].dtype)
    with torch.autocast(q.device.type, enabled=False):
        return torch.ops.nsa.decode(*inputs, lengths, handle, *others)  # type: ignore[no-any-return]


library.define(
    SCHEMA, _operator, _shapes, [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []
)
library.LIBRARY.impl("decode", _without_gradient, "Autograd")
for _device in ("CPU", "CUDA"):
    library.LIBRARY.impl("decode", _in_autocast, f"Autocast{_device}")


def _decode(
    q: Tensor,
    k: Branches,
    v: Branches,
    gates: Tensor,
    cache: NSACache,
    counts: Sequence[int] | Tensor | None,
    scale: float | None,
    backend: routing.BackendChoice,
    strict: bool,
) -> Tensor:
    keys, values = cache.branches(k, v)
    checks.attention(NAME, q, keys[0], values[0])
    checks.gates(NAME, gates, q)
    checks.alike(NAME, q=q, gates=gates)
    if q.shape[1] != keys[0].shape[1]:
        raise ValueError(f"{NAME}: q has {q.shape[1]} tokens and k has {keys[0].shape[1]}")
    plain = {"backend": routing.per_operation(backend), "strict": strict}
    scale = default_scale(q, scale)
    if q.shape[1] == 1:
        return _step(q, keys, values, gates, cache, counts, scale, plain)
    mapping = cache.slot_mapping(q.shape[1], counts)
    with cache.whole_or_nothing():
        o = _chunk(q, keys, values, gates, cache, mapping, scale, plain)
    padding = torch.arange(mapping.width) >= torch.tensor(mapping.counts)[:, None]
    return o.masked_fill(to_device(padding, o.device)[..., None, None], 0.0) if padding.any() else o


def _chunk(
    q: Tensor,
    keys: Triple,
    values: Triple,
    gates: Tensor,
    cache: NSACache,
    mapping: SlotMapping,
    scale: float,
    plain: dict[str, Any],
) -> Tensor:
    """Several tokens of each sequence, appended and attended to."""
    if cache.empty:
        cache.append(keys, values, counts=mapping.counts)
        first = _first_compressed(cache, mapping.width)
        return nsa_attention(q, keys, values, gates, cache.config, compressed=first, scale=scale, **plain)
    start, recent = cache.lengths.clone(), cache.recent(mapping, keys[2], values[2])
    cache.append(keys, values, counts=mapping.counts)
    return _chunk_attention(q, gates, cache, start, max(mapping.starts) + mapping.width, recent, scale, plain)


def _step(
    q: Tensor,
    keys: Triple,
    values: Triple,
    gates: Tensor,
    cache: NSACache,
    counts: Sequence[int] | Tensor | None,
    scale: float,
    plain: dict[str, Any],
) -> Tensor:
    """One token of each sequence, appended and attended to by one backend."""
    if not (cache.capturing and isinstance(counts, Tensor)):
        counts = cache.slot_mapping(1, counts).counts
    o, cache.branch_reads, _ = _routed(
        (q, *keys, *values, gates, *([counts] if isinstance(counts, Tensor) else [])),
        cache,
        lambda module: module.step(q, keys, values, gates, cache, counts=counts, scale=scale),
        lambda _: _judge(q, gates, cache, None, scale),
        ("step", scale, isinstance(counts, Tensor) or not all(counts)),
        plain,
    )
    if not isinstance(counts, Tensor):
        if all(counts):
            return o
        counts = to_device(torch.tensor(counts), o.device)
    return o.masked_fill((counts == 0)[:, None, None, None], 0.0)


def _routed(
    tensors: tuple[Tensor, ...],
    cache: NSACache,
    call: Callable[[ModuleType], Stepped],
    judge: routing.record.Judge | None,
    facts: Key,
    plain: dict[str, Any],
) -> Stepped:
    """A step of one token by the backend for it. Its plan belongs to the cache, whose buffers its launches read."""
    backend = plain["backend"]
    choice = tuple(backend.items()) if isinstance(backend, Mapping) else backend
    switches = id(flags.current()), choice, plain["strict"]
    key = (*facts, *switches, *map(layout, tensors), *(x.data_ptr() for x in cache.tensors))
    plan = cache.plans.get(key)
    if plan is None:
        q, (k, v) = tensors[0], cache.selected.shaped
        request = routing.Request(
            "decode", q.device, q.dtype, len(q), 1, k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3],
            cache.config, offset=True,
        )  # fmt: skip
        decision = routing.decided(request, **plain)
        plan = Plan(key, request, decision, flags.current(), owned=True)
        if len(cache.plans) >= MOST_STEPS:
            cache.plans.clear()
        cache.plans[key] = plan
    assert plan.decision is not None
    with plan.active():
        return routing.carry_out(plan.decision, plan.request, call, judge)


def _check_cache(operation: str, cache: object) -> None:
    if not isinstance(cache, NSACache):
        raise TypeError(f"{operation}: cache must be an NSACache, got {type(cache).__name__}")


@library.apart
def cached_attention(
    q: Tensor,
    gates: Tensor,
    cache: NSACache,
    *,
    branches: Collection[str] = BRANCHES,
    block_indices: Tensor | None = None,
    scale: float | None = None,
    backend: routing.BackendChoice = None,
    strict: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention of the last token of each sequence, which the cache holds already; changes only its `reads`.

    Args:
        q: [B,1,Hq,Dk].
        gates: [B,1,Hq,3], already activated.
        cache: not empty, and not just undone.
        branches: those to compute; the others count as 0 (to time one alone).
        block_indices: int32 [B,1,Hkv,n], as returned, instead of the selection.
        scale, backend, strict: as in `nsa_decode`.

    Returns:
        o [B,1,Hq,Dv], and the selected blocks int32 [B,1,Hkv,n_sel]. Not differentiable, as `nsa_decode`.
    """
    name = "cached_attention"
    _check_cache(name, cache)
    checks.tensor(name, "q", q)
    if q.dim() != 4 or q.shape[1] != 1 or cache.empty:
        raise ValueError(f"{name}: one query [B,1,Hq,Dk] and a cache with tokens are needed, got {list(q.shape)}")
    if cache.rewound:
        raise ValueError(f"{name}: after undo the window lacks a key of the last token; append a token first")
    if not branches or set(branches) - set(BRANCHES):
        raise ValueError(f"{name}: branches must be some of {', '.join(BRANCHES)}, got {', '.join(branches) or 'none'}")
    held_k, held_v = cache.selected.shaped
    checks.attention(name, q, held_k, held_v)
    checks.gates(name, gates, q)
    if block_indices is not None:
        checks.block_indices(name, block_indices, q, held_k.shape[2])
    scale = default_scale(q, scale)
    with torch.no_grad():
        o, cache.branch_reads, block_indices = _routed(
            (q, gates) if block_indices is None else (q, gates, block_indices),
            cache,
            lambda module: module.decode(q, gates, cache, scale=scale, branches=branches, block_indices=block_indices),
            None if len(branches) < 3 else lambda _: _judge(q, gates, cache, block_indices, scale),
            ("cached", scale, frozenset(branches)),
            {"backend": backend, "strict": strict},
        )
    return no_gradient(o, q, gates), block_indices


def _judge(q: Tensor, gates: Tensor, cache: NSACache, block_indices: Tensor | None, scale: float) -> Tensor:
    """The oracle's output for the last token of each sequence, 0 for one without any."""
    config, t = cache.config, (cache.lengths - 1).clamp(min=0)
    count = max(1, num_compressed(cache.longest, config))
    read = cache.compressed.first(count), cache.selected.first(cache.longest), cache.window.stored
    compressed, selected, window = ((widened(k), widened(v)) for k, v in read)
    query = widened(q)
    where = {"scale": scale, "cu_seqlens": None, "q_start": t}
    if block_indices is None:
        block_indices = reference.select_blocks(query, compressed[0], config, **where)
    o_cmp, _ = reference.compressed_attention(query, *compressed, config, **where)
    o_sel = reference.selected_attention(query, *selected, block_indices, config, **where)
    where["q_start"] = t.clamp(max=config.w - 1)  # the ring, from its first row: softmax does not mind the order
    o_win = reference.sliding_window_attention(query, *window, config.w, **where)
    o = reference.gated_combine(o_cmp, o_sel, o_win, widened(gates))
    return o.masked_fill((cache.lengths == 0)[:, None, None, None], 0.0)


def _first_compressed(cache: NSACache, tokens: int) -> tuple[Tensor, Tensor]:
    """The compressed tokens of sequences that have just begun with `tokens` tokens."""
    count = num_compressed(tokens, cache.config)
    k, v = cache.compressed.first(count)
    return k[:, :count], v[:, :count]


def _chunk_attention(
    q: Tensor,
    gates: Tensor,
    cache: NSACache,
    start: Tensor,
    end: int,
    recent: Recent,
    scale: float,
    plain: dict[str, Any],
) -> Tensor:
    """Several tokens from position start[b] on, which the cache holds already; `recent` was taken before.

    The last of them, which may be padding, stands before position `end`.
    """
    config = cache.config
    k_cmp, v_cmp = cache.compressed.first(max(1, num_compressed(end, config)))
    k_sel, v_sel = cache.selected.first(end)
    where = {"scale": scale, "cu_seqlens": None, "q_start": start}
    o_cmp, lse = compressed_attention(q, k_cmp, v_cmp, config, **where, **plain)
    block_indices = select_blocks(q, k_cmp, config, lse=lse, **where, **plain)
    o_sel = selected_attention(q, k_sel, v_sel, block_indices, config, validate=False, **where, **plain)
    where["q_start"] = recent.start
    o_win = sliding_window_attention(q, recent.k, recent.v, config.w, **where, **plain)
    return gated_combine(o_cmp, o_sel, o_win, gates, **plain)
