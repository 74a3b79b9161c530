"""Native Sparse Attention whole: the branches composed, or one fused function where a backend has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from nsa import blocks, library, reference, routing
from nsa.bounded import Bounded
from nsa.config import NSAConfig
from nsa.ops import checks, selected, window
from nsa.ops.combine import gated_combine
from nsa.ops.compressed import compressed_attention
from nsa.ops.compression import compress
from nsa.ops.requests import Where, attention_request, attention_shapes, default_scale, widened
from nsa.ops.rotation import rotate
from nsa.ops.selection import select_blocks

NAME = "nsa_attention"
Triple = checks.Triple
Output = Tensor | tuple[Tensor, Triple]
"""o, or o and the lse of each branch."""


class Plain(TypedDict):
    """How an operation is routed."""

    backend: routing.BackendChoice
    strict: bool


# --- what the operator has beside the function ---


def _shapes(x: library.Arguments, keep: bool) -> list[Tensor]:
    q, k, v = (y if isinstance(y, Tensor) else y[-1] for y in (x["q"], x["k"], x["v"]))
    o, lse = attention_shapes(q, v)
    found = [o]
    if keep or x["return_lse"]:
        found += [lse, lse.new_empty(lse.shape), lse.new_empty(lse.shape)]
    return [*found, *_kept_besides(o, k, x["config"], x["block_indices"])] if keep else found


def _kept_besides(o: Tensor, k: Tensor, config: NSAConfig, given: Tensor | None) -> list[Tensor]:
    """New tensors for what is kept beside the lse: o of each branch, and the blocks where they are chosen here."""
    branches = [o.new_empty(o.shape) for _ in range(3)]
    chosen = o.new_empty(*o.shape[:2], k.shape[2], config.n_sel, dtype=torch.int32)
    return branches if given is not None else [*branches, chosen]


def _gradient(grad: Tensor, results: list[Tensor], x: library.Arguments) -> Sequence[Tensor] | None:
    """By the gradient of the backend that computed the whole; results as `_shapes` has them, lse included."""
    call = prepared(**{name: x[name] for name in x if name not in ("backend", "strict", "return_lse")})
    if _dense_instead(call, x["backend"], x["return_lse"]):
        return None
    module = routing.module(call.request, routing.per_operation(x["backend"]))
    return module and module.attention_gradient(grad, results, call)  # type: ignore[no-any-return]


def _returns(results: list[Tensor], x: library.Arguments) -> Output:
    return (results[0], (results[1], results[2], results[3])) if x["return_lse"] else results[0]


@library.operator(_shapes, _gradient, _returns)
def nsa_attention(
    q: Tensor,
    k: Tensor | Triple,
    v: Tensor | Triple,
    gates: Tensor,
    config: NSAConfig = NSAConfig(),
    *,
    compressed: tuple[Tensor, Tensor] | None = None,
    compressed_rope: float | None = None,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    block_indices: Tensor | None = None,
    backend: routing.BackendChoice = None,
    strict: bool = False,
    deterministic: bool = False,
    return_lse: bool = False,
) -> Output:
    """Compressed, selected and window attention, summed under the gates (Eq. 5).

    Args:
        q: [B,T,Hq,Dk].
        k, v: one tensor [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv] for all branches, or a triple (cmp, sel, win).
        gates: [B,T,Hq,3] in (cmp, sel, win) order, already activated.
        config: the sizes.
        compressed: (k_cmp, v_cmp) [B,Tc,Hkv,D*] instead of the mean of the cmp keys and values.
        compressed_rope: base of a rotary embedding (as `nsa.ops.rotate`) of the means of keys: that of a span is turned
            at the span's first position, i*d, and the cmp keys are given unrotated. Not with `compressed`.
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
        return_lse: give the branches' log-sum-exps too.

    Returns:
        o [B,T,Hq,Dv]; with return_lse also (lse_cmp, lse_sel, lse_win), each [B,T,Hq], at least fp32, natural log,
        -inf where nothing is visible; not differentiable.

    Raises:
        ValueError: arguments that do not go together; the sentence says which.
        TypeError: an argument of another type.
    """
    call = prepared(
        q, k, v, gates, config, compressed, compressed_rope, scale, cu_seqlens, q_start, block_indices, deterministic
    )
    if _dense_instead(call, backend, return_lse):
        return _dense(call, strict)
    choice = routing.per_operation(backend)
    found = routing.run_whole(
        call.request,
        lambda module: module.attention(call, return_lse),
        backend=choice,
        strict=strict,
        judge=call.judge,
    )
    o, *others = _composed(call, choice, strict, return_lse) if found is None else found
    library.keep(*others[3 if return_lse else 0 :])
    return (o, (others[0], others[1], others[2])) if return_lse else o


class Call(NamedTuple):
    """A call whose arguments go together.

    Attributes:
        request: its facts.
        q, gates: [B,T,Hq,Dk], [B,T,Hq,3].
        k, v: of the branches (cmp, sel, win).
        config, compressed, compressed_rope, scale, cu_seqlens, q_start, block_indices: as given, the borders int32
            beside q.
    """

    request: routing.Request
    q: Tensor
    k: Triple
    v: Triple
    gates: Tensor
    config: NSAConfig
    compressed: tuple[Tensor, Tensor] | None
    compressed_rope: float | None
    scale: float
    cu_seqlens: Tensor | None
    q_start: Tensor | None
    block_indices: Tensor | None

    @property
    def where(self) -> Where:
        return {"scale": self.scale, "cu_seqlens": self.cu_seqlens, "q_start": self.q_start}

    def judge(self, rows: list[int]) -> Tensor:
        """The oracle's output for some query rows."""
        k, v, given = (tuple(map(widened, x)) for x in (self.k, self.v, self.compressed or ()))
        return reference.nsa_attention(
            widened(self.q), k, v, widened(self.gates), self.config, **self.where, compressed=given or None,
            compressed_rope=self.compressed_rope, block_indices=self.block_indices, rows=rows,
        )  # fmt: skip


def _composed(call: Call, choice: dict[str, str], strict: bool, lse: bool) -> list[Tensor]:
    """The operations one after another: the results as `_shapes` has them, with all that is kept."""
    plain: Plain = {"backend": choice, "strict": strict}
    q, config, where, deterministic = call.q, call.config, call.where, call.request.deterministic
    k_cmp, v_cmp = call.compressed or (
        compress(x, config, cu_seqlens=call.cu_seqlens, **plain) for x in (call.k[0], call.v[0])
    )
    if call.compressed_rope is not None:
        at = blocks.compressed_positions(k_cmp.shape[1], config, call.cu_seqlens, q.device)
        k_cmp = rotate(k_cmp, at, call.compressed_rope, **plain)
    o_cmp, lse_cmp = compressed_attention(q, k_cmp, v_cmp, config, **where, **plain, deterministic=deterministic)
    chosen = call.block_indices
    if chosen is None:
        chosen = select_blocks(q, k_cmp, config, lse=lse_cmp, **where, **plain)
    o_sel, lse_sel = selected.attend(
        q, call.k[1], call.v[1], chosen, config, where, **plain, deterministic=deterministic, lse=lse
    )
    o_win, lse_win = window.attend(q, call.k[2], call.v[2], config.w, where, **plain, deterministic=deterministic)
    o = gated_combine(o_cmp, o_sel, o_win, call.gates, **plain)
    return [o, lse_cmp, lse_sel, lse_win, o_cmp, o_sel, o_win, *([chosen] if call.block_indices is None else [])]


def _dense_instead(call: Call, backend: routing.BackendChoice, lse: bool) -> bool:
    """Dense attention is a choice where all branches share K and V and nothing about them is given or asked for."""
    if lse or backend is not None or not routing.prefers_dense(call.request):
        return False
    shared = all(x is call.k[0] for x in call.k) and all(x is call.v[0] for x in call.v)
    given = call.compressed is not None or call.compressed_rope is not None or call.block_indices is not None
    return shared and not given and not call.request.offset


def _dense(call: Call, strict: bool) -> Tensor:
    """Causal attention to all keys instead."""
    o: Tensor = routing.run(
        replace(call.request, operation="dense"),
        lambda module: module.dense(call.q, call.k[1], call.v[1], scale=call.scale, cu_seqlens=call.cu_seqlens),
        strict=strict,
    )
    if library.keeping() is not None:  # which has its shape, whatever computed
        lse = attention_shapes(call.q, call.v[1])[1]
        library.keep(lse, lse, lse, *_kept_besides(o, call.k[1], call.config, None))
    return o


def prepared(
    q: Tensor,
    k: Tensor | Triple,
    v: Tensor | Triple,
    gates: Tensor,
    config: NSAConfig,
    compressed: tuple[Tensor, Tensor] | None,
    compressed_rope: float | None,
    scale: float | None,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
    block_indices: Tensor | None,
    deterministic: bool,
) -> Call:
    """The call, refused if its arguments do not go together."""
    if compressed_rope is not None:
        if compressed is not None:
            raise ValueError(f"{NAME}: compressed_rope is of the means; compressed is used as it is given")
        checks.rotation(NAME, q.shape[-1] if isinstance(q, Tensor) else 0, compressed_rope)
    keys, values = checks.triple(NAME, "k", k), checks.triple(NAME, "v", v)
    borders = checks.borders(NAME, cu_seqlens, q)
    request = _request(q, keys, values, gates, config, compressed, block_indices, borders, q_start, deterministic)
    return Call(
        request, q, keys, values, gates, config, compressed, compressed_rope, default_scale(q, scale), borders, q_start,
        block_indices,
    )  # fmt: skip


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
        key = (
            config,
            deterministic,
            torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(),
            library.keeping() is None,
            compressed is None,
            shared,
            layouts,
        )
        found = None if values_matter else _agreed.get(key)
    except (AttributeError, TypeError):  # something is of another type: it is said which
        _check(q, keys, values, gates, config, compressed, cu_seqlens, q_start, block_indices)
        raise
    if found is not None:
        return found
    _check(q, keys, values, gates, config, compressed, cu_seqlens, q_start, block_indices)
    found = attention_request(
        "attention", q, keys[1], values[1], config, {"scale": 0.0, "cu_seqlens": cu_seqlens, "q_start": q_start},
        deterministic=deterministic, others=(*keys, *values, gates, *given),
        phi="mean" if compressed is None else "",
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
