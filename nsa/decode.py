"""Attention through a cache: chunks of a prompt, then one token, or a few, at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from nsa import checks, flags, functional, library, reference, routing
from nsa.blocks import num_compressed
from nsa.cache import CACHES, Branches, NSACache, Triple, check_cache
from nsa.config import BRANCHES
from nsa.host import to_device, with_numbers
from nsa.operations import widened
from nsa.plans import Key, Plan, layout, sharing
from nsa.routing.registry import MOST_TOKENS, REGISTRY
from nsa.serving.slot_mapping import SlotMapping

NAME = "nsa_decode"
MOST_STEPS = 16
"""Kinds of steps that a cache keeps plans of."""
SENTENCE = (
    "no gradient flows through a cache: what it holds keeps no graph. Train without a cache (nsa_attention, or the "
    "layer called without one), or take the step under torch.no_grad()"
)


@library.in_graphs
def nsa_decode(
    q: Tensor, k: Branches, v: Branches, gates: Tensor, cache: NSACache, *,
    counts: Sequence[int] | Tensor | None = None, scale: float | None = None, backend: routing.BackendChoice = None,
    strict: bool = False,
) -> Tensor:  # fmt: skip
    """Append new tokens to the cache, then attend: the outputs of `nsa_attention` at their positions.

    Args:
        q: [B,T,Hq,Dk]; T = 1 is a decode step, whose reads the cache counts. More is a chunk of a prompt, or tokens to
            verify: up to 8, and no more than w, the Triton backend takes in one step where compressed tokens are means.
        k, v: one tensor [B,T,Hkv,Dk], [B,T,Hkv,Dv] for all branches, or a triple (cmp, sel, win).
        gates: [B,T,Hq,3] in (cmp, sel, win) order, already activated.
        cache: grows by the new tokens. Its config holds the sizes, its compressor makes compressed tokens.
        counts: integers [B]: of entry b only the first counts[b] tokens are real, the rest is padding.
        scale: of the logits; default Dk**-0.5.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv], 0 for padding. Not differentiable: a backward pass through it is an error.

    On the Triton backend a step never waits for the device and can be captured in a CUDA graph, if the
    cache has room (`NSACache.reserve`) and one step ran before.
    Replays append to the cache; `NSACache.advance` tells its host side. `counts` is then None or int32 on the device.

    Raises:
        ValueError: arguments that do not go together, or do not fit the cache.
        TypeError: an argument of another type.
        nsa.routing.RoutingError: as `nsa.nsa_attention`.
    """
    check_cache(NAME, cache)
    if library.intercepted((q, k, v, gates)):
        checks.dense(NAME, {"q": q, "k": k, "v": v, "gates": gates})
        numbers, tensor = (None, counts) if isinstance(counts, Tensor) else (counts and list(counts), None)
        branches, choice = library.KINDS["Tensor | Triple"].encode, library.KINDS["routing.BackendChoice"].encode
        return torch.ops.nsa.decode(  # type: ignore[no-any-return]
            q, branches(k), branches(v), gates, cache.lengths, cache.handle, numbers, tensor, scale, choice(backend),
            strict,
        )  # fmt: skip
    if library.any_autocast() and library.autocast_dtype(q.device) is not None:
        q, k, v, gates = library.cast((q, k, v, gates), cache.window.k.dtype)
    with torch.no_grad():
        o = _decode(q, k, v, gates, cache, counts, scale, backend, strict)
    return library.refusing(SENTENCE, o, (q, k, v, gates))


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
    return library.refusing(SENTENCE, o, (q, *k, *v, gates))


def _in_autocast(
    q: Tensor, k: list[Tensor], v: list[Tensor], gates: Tensor, lengths: Tensor, handle: int, *others: object
) -> Tensor:
    """In the cache's dtype."""
    inputs = library.cast((q, k, v, gates), CACHES[handle].window.k.dtype)
    with torch.autocast(q.device.type, enabled=False):
        return torch.ops.nsa.decode(*inputs, lengths, handle, *others)  # type: ignore[no-any-return]


library.define(
    SCHEMA, _operator, _shapes, [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []
)
library.LIBRARY.impl("decode", library.apart(_without_gradient), "Autograd")
for _device in ("CPU", "CUDA"):
    library.LIBRARY.impl("decode", library.apart(_in_autocast), f"Autocast{_device}")


def _decode(
    q: Tensor, k: Branches, v: Branches, gates: Tensor, cache: NSACache, counts: Sequence[int] | Tensor | None,
    scale: float | None, backend: routing.BackendChoice, strict: bool,
) -> Tensor:  # fmt: skip
    keys, values = cache.branches(k, v)
    _check_query(NAME, q, gates, keys[0], values[0], strict)
    if q.shape[1] != keys[0].shape[1]:
        raise ValueError(f"{NAME}: q has {q.shape[1]} tokens and k has {keys[0].shape[1]}")
    how = {"backend": routing.per_operation(backend), "strict": strict}
    scale = checks.scale(NAME, q, scale)
    if q.shape[1] == 1 or _at_once(q, cache, how):
        return _step(q, keys, values, gates, cache, counts, scale, how)
    mapping = cache.slot_mapping(q.shape[1], counts)
    ragged = any(count < mapping.width for count in mapping.counts)
    if ragged:  # padding may hold no numbers, which kernels keep out of earlier rows but for those of their own tile
        counts = to_device(mapping.counts, q.device)[:, None, None, None]
        padding = torch.arange(mapping.width, device=q.device)[:, None, None] >= counts
        keys, values = (tuple(x.masked_fill(padding, 0.0) for x in triple) for triple in (keys, values))
    with cache.whole_or_nothing():
        o = _chunk(q, keys, values, gates, cache, mapping, {"scale": scale, **how}, how)
    return o.masked_fill(padding, 0.0) if ragged else o


def _chunk(
    q: Tensor, keys: Triple, values: Triple, gates: Tensor, cache: NSACache, mapping: SlotMapping,
    scaled: dict[str, Any], how: dict[str, Any],
) -> Tensor:  # fmt: skip
    """Several tokens of each sequence, appended and attended to. The last may be padding; it stands before `end`."""
    config, empty, end = cache.config, cache.empty, max(mapping.starts) + mapping.width
    start = with_numbers(cache.lengths.clone(), mapping.starts)
    recent = None if empty else cache.recent(mapping, keys[2], values[2])
    cache.append(keys, values, counts=mapping.counts)
    count = num_compressed(end, config)
    k_cmp, v_cmp = cache.compressed.first(count if empty else max(1, count))
    if recent is None:  # these sequences have just begun
        first = k_cmp[:, :count], v_cmp[:, :count]
        return functional.nsa_attention(q, keys, values, gates, config, compressed=first, **scaled)
    k_sel, v_sel = cache.selected.first(end)
    o_cmp, lse = functional.compressed_attention(q, k_cmp, v_cmp, config, q_start=start, **scaled)
    chosen = functional.select_blocks(q, k_cmp, config, lse=lse, q_start=start, **scaled)
    o_sel = functional.selected_attention(q, k_sel, v_sel, chosen, config, validate=False, q_start=start, **scaled)
    k_win, v_win, at = recent
    o_win = functional.sliding_window_attention(q, k_win, v_win, config.w, q_start=at, **scaled)
    return functional.gated_combine(o_cmp, o_sel, o_win, gates, **how)


def _step(
    q: Tensor, keys: Triple, values: Triple, gates: Tensor, cache: NSACache, counts: Sequence[int] | Tensor | None,
    scale: float, how: dict[str, Any],
) -> Tensor:  # fmt: skip
    """One token of each sequence, or a few, appended and attended to by one backend."""
    tokens = q.shape[1]
    if not (cache.capturing and isinstance(counts, Tensor)):
        mapping = cache.slot_mapping(tokens, counts)
        cache.reserve(mapping.ends)  # before its plan is looked up, which names the buffers
        counts = mapping.counts
    whole = not isinstance(counts, Tensor) and all(count == tokens for count in counts)
    given = (counts,) if isinstance(counts, Tensor) else ()
    judge = _judge(q, keys, values, gates, cache, counts, scale)
    o, _ = _routed(
        (q, *keys, *values, gates, *given), cache, ("step", scale, whole), how,
        lambda module: module.step(q, keys, values, gates, cache, counts=counts, scale=scale), judge,
    )  # fmt: skip
    if tokens > 1:
        cache.branch_reads = None
    if whole:
        return o
    real = (counts if isinstance(counts, Tensor) else to_device(counts, o.device))[:, None]
    padding = real == 0 if tokens == 1 else torch.arange(tokens, device=o.device) >= real
    return o.masked_fill(padding[:, :, None, None], 0.0)


def _judge(
    q: Tensor, keys: Triple, values: Triple, gates: Tensor, cache: NSACache, counts: Sequence[int] | Tensor | None,
    scale: float,
) -> routing.Judge | None:  # fmt: skip
    """The oracle of a step. What several tokens read is overwritten by it: theirs takes a copy of the cache before."""
    if q.shape[1] == 1:
        return lambda _: _judged(q, gates, cache, None, scale)
    if not flags.current().debug_compare or cache.capturing:
        return None
    before, (wide, weights) = deepcopy(cache), widened((q, gates))
    return lambda rows: reference.nsa_decode(wide, keys, values, weights, before, counts=counts, scale=scale)[:, rows]


def _at_once(q: Tensor, cache: NSACache, how: dict[str, Any]) -> bool:
    """Whether the backend of a step takes all new tokens of a sequence at once: else they are a chunk."""
    tokens = q.shape[1]
    if not 1 < tokens <= MOST_TOKENS or cache.mean is None:
        return False
    decision = routing.decide(_request(q, cache), how["backend"], flags.current())
    return decision is not None and tokens <= REGISTRY[decision.backend].most_tokens


def _routed(
    tensors: tuple[Tensor, ...], cache: NSACache, facts: Key, how: dict[str, Any],
    call: Callable[[ModuleType], tuple[Tensor, Tensor, Tensor]], judge: routing.Judge | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o and blocks of a step by the backend for it; what was read is the cache's to say. The step's plan
    belongs to the cache, whose buffers its launches read.
    """
    backend = how["backend"]
    choice = tuple(backend.items()) if isinstance(backend, Mapping) else backend
    switches = id(flags.current()), choice, how["strict"]
    buffers = (x.data_ptr() for x in cache.tensors)
    key = (*facts, *switches, *map(layout, tensors), sharing(tensors), *buffers)
    plan = cache.plans.get(key)
    if plan is None:
        request = _request(tensors[0], cache)
        decision = routing.decided(request, **how)
        plan = Plan(key, request, decision, flags.current(), owned=True)
        if len(cache.plans) >= MOST_STEPS:
            cache.plans.clear()
        cache.plans[key] = plan
    assert plan.decision is not None
    decision = plan.decision
    safe = facts[0] == "cached" or plan.ran or cache.capturing
    with nullcontext() if safe else cache.whole_or_nothing():  # a kernel may not compile, after others have appended
        o, cache.branch_reads, chosen = plan.within(lambda: routing.carry_out(decision, plan.request, call, judge))
    plan.ran = True
    return o, chosen


def _request(q: Tensor, cache: NSACache) -> routing.Request:
    k, v = cache.window.stored
    return routing.Request(
        "decode", q.device, q.dtype, *q.shape[:2], cache.capacity, q.shape[2], k.shape[2], q.shape[3], v.shape[3],
        cache.config, offset=True,
    )  # fmt: skip


def _check_query(operation: str, q: Tensor, gates: Tensor, k: Tensor, v: Tensor, strict: object) -> None:
    checks.attention(operation, q, k, v)
    checks.gates(operation, gates, q)
    checks.alike(operation, q=q, gates=gates)
    checks.switch(operation, "strict", strict)


@library.apart
def cached_attention(
    q: Tensor, gates: Tensor, cache: NSACache, *, branches: Collection[str] = BRANCHES,
    block_indices: Tensor | None = None, scale: float | None = None, backend: routing.BackendChoice = None,
    strict: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
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

    Raises:
        ValueError, TypeError, nsa.routing.RoutingError: as `nsa_decode`.
    """
    name = "cached_attention"
    check_cache(name, cache)
    checks.axes(name, ("q", q, "B,T,Hq,Dk"), T=1)
    if cache.empty:
        raise ValueError(f"{name}: the cache must hold a token at least; it is empty")
    if cache.rewound:
        raise ValueError(f"{name}: after undo the window lacks a key of the last token; append a token first")
    if not branches or set(branches) - set(BRANCHES):
        raise ValueError(f"{name}: branches must be some of {', '.join(BRANCHES)}, got {', '.join(branches) or 'none'}")
    held_k, held_v = cache.window.stored
    _check_query(name, q, gates, held_k, held_v, strict)
    if block_indices is not None:
        checks.block_indices(name, block_indices, q, held_k.shape[2])
    scale = checks.scale(name, q, scale)
    with torch.no_grad():
        o, chosen = _routed(
            (q, gates) if block_indices is None else (q, gates, block_indices), cache,
            ("cached", scale, frozenset(branches)), {"backend": backend, "strict": strict},
            lambda module: module.decode(q, gates, cache, scale=scale, branches=branches, block_indices=block_indices),
            None if len(branches) < 3 else lambda _: _judged(q, gates, cache, block_indices, scale),
        )  # fmt: skip
    return library.refusing(SENTENCE, o, (q, gates)), chosen


def _judged(q: Tensor, gates: Tensor, cache: NSACache, block_indices: Tensor | None, scale: float) -> Tensor:
    """The oracle's output for the last token of each sequence."""
    q, gates = widened((q, gates))
    return reference.cached_attention(q, gates, cache, block_indices=block_indices, scale=scale)[0]
