"""The backends and what one must provide.

A backend is a module that defines a function for each operation it implements, among those of `OPERATIONS`:

    rotate(x, positions, base) -> x
    compress(x, config, phi, cu_seqlens) -> x_cmp
    compressed(q, k_cmp, v_cmp, config, how) -> o, lse
    select(q, k_cmp, config, lse, how) -> block_indices
    selected(q, k, v, block_indices, config, how) -> o, lse
    window(q, k, v, window, how) -> o, lse
    combine(o_cmp, o_sel, o_win, gates) -> o
    attention(call, lse, keep) -> [o, and what `nsa.kernels.attention.attention` says for `lse` and `keep`]
    decode(q, gates, cache, *, scale, branches, block_indices) -> o, reads, block_indices
                                                  (the last token of each sequence in an `nsa.NSACache`)
    step(q, k, v, gates, cache, *, counts, scale) -> o, reads, block_indices
                                                  (the same operation, after appending T tokens of each sequence,
                                                  and for these; counts: integers 0 to T, or int32 on the device while
                                                  a CUDA graph is captured)

with the shapes and the semantics of `nsa.ops`, arguments already checked, `scale` a float, `how` an `nsa.routing.How`,
`lse` None or that of `compressed`; every function is differentiable by autograd (`select` and `lse` are not).
`attention` is the whole operation of an `nsa.attention.Call` in one autograd function. The lse of `selected` is None
where `supports` refuses a request that asks for it.

`ORDERS_BORDERS = True`: its `attention` takes borders of packed sequences, int32 or int64, that nobody looked at, and
has `nsa.host.raise_noted` know where they cannot be.

It may define NAME_gradient for rotate, compressed, selected, window and attention: the gradients, given that of o and
results, for the operators `nsa::NAME_backward` (see `nsa.library`); without it they run NAME again and let autograd
follow.

The module also defines `supports(request) -> str | None`: None, or the sentence that says why this request (an
`nsa.routing.Request`) cannot run here. It must not launch anything. A module that computes in several ways may define
`forward(request) -> str` and `gradient(request) -> str`: which one this request takes, and why. A module constant
`INTERPRETED = True` says that its kernels run in Triton's CPU interpreter.

Modules are imported when a route first needs them, so a package that is not installed is a routing reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

OPERATIONS = tuple("rotate compress compressed select selected window combine attention decode".split())


@dataclass(frozen=True)
class Backend:
    """A row of the registry: the module, the packages that it imports, what it implements, and the largest T of its
    `step`.
    """

    module: str
    needs: tuple[str, ...]
    operations: tuple[str, ...]
    most_tokens: int = 1


MOST_TOKENS = 8
"""New tokens of a sequence that any backend takes in one step; more are a chunk."""

REGISTRY = {
    "torch": Backend("nsa.fallback.torch", (), tuple(x for x in OPERATIONS if x != "attention")),
    "triton": Backend("nsa.kernels.backend", ("triton",), OPERATIONS, MOST_TOKENS),
    "fa2": Backend("nsa.providers.fa2", (), ("compressed", "window")),
    "cuda": Backend("nsa.providers.cuda", (), ("selected",)),
}


def check_name(name: str) -> None:
    """Refuse a backend that does not exist."""
    if name not in REGISTRY:
        raise ValueError(f"unknown backend {name!r}; expected one of {', '.join(REGISTRY)}")


def implements(name: str, operation: str) -> bool:
    """Whether the backend has this operation at all, for some request."""
    return operation in REGISTRY[name].operations


@lru_cache
def missing(name: str) -> str | None:
    """Why the backend cannot be imported, or None."""
    row = REGISTRY[name]
    for package in row.needs:
        if find_spec(package) is None:
            return f"the package {package} is not installed"
    return None if find_spec(row.module) else f"{row.module} is not part of this installation"


@lru_cache
def load(name: str) -> ModuleType:
    """The backend's module, imported at the first call. Ask `missing` before."""
    return import_module(REGISTRY[name].module)


def interpreted(name: str) -> bool:
    """Whether the backend's kernels run in an interpreter on the CPU."""
    return bool(getattr(load(name), "INTERPRETED", False))
