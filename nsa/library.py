"""The operations as PyTorch knows them: `torch.ops.nsa.*`, with a schema, shapes, a gradient and autocast.

`@operator` makes a public function an operator too, whose schema is the function's own signature. A plain call stays a
plain call of Python: the function checks, routes and computes, and autograd follows it, as ever. Where something
follows or transforms the program (`torch.compile`, export, FakeTensor, a checkpoint that chooses by operator, any other
dispatch mode, a tensor subclass), it calls the operator, and that the same function, without a graph; its gradient is
an operator of its own, `nsa::NAME_backward`. No semantics stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from inspect import signature
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from nsa.config import NSAConfig
from nsa.host import is_compiling
from nsa.phi import MlpPhi, WeightedPhi

P = ParamSpec("P")
R = TypeVar("R")
Arguments = dict[str, Any]
"""Of a public function, by name."""

LIBRARY = torch.library.Library("nsa", "DEF")
OPERATORS: dict[str, Operator] = {}
"""By name."""

below_autograd = torch._C._AutoDispatchBelowAutograd
any_autocast: Callable[[], bool] = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()
)
IN_GRAPHS = hasattr(torch.library, "register_vmap")
"""Whether graphs hold the operators: torch 2.5 or later. Before, `torch.compile` leaves them out (`apart`)."""
register_fake = getattr(torch.library, "register_fake", None) or torch.library.impl_abstract


# --- arguments, as schemas can say them ---


@dataclass(frozen=True)
class Kind:
    """How one annotation of a public function stands in a schema."""

    schema: str
    encode: Callable[[Any], Any] = lambda x: x
    decode: Callable[[Any], Any] = lambda x: x


def _of_branches(x: Any) -> list[Tensor]:
    if isinstance(x, Tensor):
        return [x]
    return [x[0]] if x[0] is x[1] and x[0] is x[2] else list(x)


def _of_phi(phi: WeightedPhi | MlpPhi | None) -> list[Tensor]:
    if phi is None:
        return []
    if isinstance(phi, WeightedPhi):
        return [phi.weight]
    return [phi.position, phi.w_in, phi.b_in, phi.w_out, phi.b_out]


def _to_phi(tensors: list[Tensor]) -> WeightedPhi | MlpPhi | None:
    return {0: lambda: None, 1: WeightedPhi, 5: MlpPhi}[len(tensors)](*tensors)  # type: ignore[operator,no-any-return]


def _of_backend(choice: Any) -> list[str]:
    if choice is None:
        return []
    return [choice] if isinstance(choice, str) else [word for item in choice.items() for word in item]


def _to_backend(words: list[str]) -> str | dict[str, str] | None:
    return dict(zip(words[::2], words[1::2], strict=True)) if len(words) > 1 else next(iter(words), None)


def _of_config(x: NSAConfig) -> list[int]:
    return [x.l, x.d, x.l_sel, x.n_sel, x.w, x.init_blocks, x.local_blocks]


_config = lru_cache(maxsize=64)(NSAConfig)

KINDS = {
    "Tensor": Kind("Tensor"),
    "Tensor | None": Kind("Tensor?"),
    "Tensor | Triple": Kind("Tensor[]", _of_branches, lambda x: x[0] if len(x) == 1 else tuple(x)),
    "tuple[Tensor, Tensor] | None": Kind("Tensor[]", lambda x: list(x or ()), lambda x: tuple(x) or None),
    "Phi | None": Kind("Tensor[]", _of_phi, _to_phi),
    "NSAConfig": Kind("int[]", _of_config, lambda x: _config(*x)),
    "routing.BackendChoice": Kind("str[]", _of_backend, _to_backend),
    "float | None": Kind("float?"),
    "float": Kind("float"),
    "int": Kind("int"),
    "bool": Kind("bool"),
}
"""By the text of the annotation."""


def _flat(arguments: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments and in their lists, in order."""
    found: list[Tensor] = []
    for x in arguments:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += _flat(x)
    return found


def _filled(arguments: Iterable[Any], tensors: Iterator[Any]) -> list[Any]:
    """The arguments with other things in the places of their tensors."""

    def filled(x: Any) -> Any:
        if isinstance(x, (Tensor, _Hole)):
            return next(tensors)
        return [filled(y) for y in x] if isinstance(x, (list, tuple)) else x

    return [filled(x) for x in arguments]


class _Hole:
    """Where a tensor stood."""


# --- when the operator is called instead of the function ---


def intercepted(arguments: Iterable[Any], named: Mapping[str, Any] = MappingProxyType({})) -> bool:
    """Whether something else than plain execution goes on: then it must see an operator. Every call asks."""
    return is_compiling() or modes() > 0 or transforms() or _follow(arguments) or _follow(named.values())


def _follow(arguments: Iterable[Any]) -> bool:
    """Whether one of these is, or holds, a tensor of a subclass, which may follow operations."""
    for x in arguments:
        if type(x) not in PLAIN and (isinstance(x, Tensor) or (isinstance(x, (tuple, list)) and _follow(x))):
            return True
    return False


modes = torch._C._len_torch_dispatch_stack
transforms = torch._C._are_functorch_transforms_active
PLAIN = frozenset((Tensor, torch.nn.Parameter, NSAConfig, type(None), bool, int, float, str, dict))
"""Types of arguments that follow nothing: told at once."""


# --- autocast, as scaled_dot_product_attention does it ---


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """What tensors on this device are computed in under autocast; None without it."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    if device.type == "cuda":
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def cast(x: Any, dtype: torch.dtype) -> Any:
    """The floating tensors in x, lists and bundles too, in this dtype; not fp64, which autocast leaves alone."""
    if isinstance(x, Tensor):
        return x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x
    if isinstance(x, (list, tuple)):
        return type(x)(cast(y, dtype) for y in x)
    return type(x)(*(cast(y, dtype) for y in vars(x).values())) if isinstance(x, (WeightedPhi, MlpPhi)) else x


# --- operators ---

_KEPT: ContextVar[list[Tensor] | None] = ContextVar("nsa_kept", default=None)


def keeping() -> list[Tensor] | None:
    """Where a function puts what its gradient needs, if it runs as an operator whose gradient is wanted."""
    return _KEPT.get()


def keep(*tensors: Tensor) -> None:
    """Put these there."""
    kept = _KEPT.get()
    if kept is not None:
        kept += tensors


@contextmanager
def _kept(wanted: bool) -> Iterator[list[Tensor] | None]:
    kept: list[Tensor] | None = [] if wanted else None
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


def needs_grad(tensors: Iterable[Tensor]) -> bool:
    """Whether the gradient of something computed from these will be wanted."""
    return _KEPT.get() is not None or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))


Gradient = Callable[[Tensor, list[Tensor], Arguments], Sequence[Tensor] | None]
"""(gradient of the first result, all results, arguments) -> gradients of the floating tensors among the arguments, in
order; None where that is not known, and autograd follows the function, run once more."""


Shapes = Callable[[Arguments, bool], list[Tensor]]
"""New tensors like the results for these arguments, in order; then, if the flag says so, like what is kept."""


def _first(results: list[Tensor], x: Arguments) -> Any:
    return results[0]


def operator(
    shapes: Shapes,
    gradient: Gradient | None = None,
    returns: Callable[[list[Tensor], Arguments], Any] = _first,
    differentiable: bool = True,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function the operator `nsa::NAME` too. Its first result alone is differentiable, in the arguments.

    Args:
        shapes: see `Shapes`.
        gradient: see `Gradient`.
        returns: what the function returns, of its results in a list.
        differentiable: False for an operator without a gradient.
    """

    def made(function: Callable[P, R]) -> Callable[P, R]:
        known = OPERATORS[function.__name__] = Operator(function, shapes, gradient, returns, differentiable)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            if intercepted(args, kwargs):
                return known.dispatched(args, kwargs)  # type: ignore[no-any-return]
            if any_autocast():
                return known.autocasted(args, kwargs)  # type: ignore[no-any-return]
            return function(*args, **kwargs)

        return in_graphs(called)

    return made


def in_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which calls an operator where it is traced; kept out of graphs where torch is too old for that."""
    return function if IN_GRAPHS else apart(function)


def apart(function: Callable[P, R]) -> Callable[P, R]:
    """Leave a function that is no operator out of `torch.compile`: a graph ends before its call, another follows."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_compiling():  # not where it is defined: that would import the compiler, a second, for everyone
            return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-any-return]
        return function(*args, **kwargs)

    return called


class Operator:
    """A function, its schema, and its operators `nsa::NAME` and `nsa::NAME_backward`; both give a list of tensors."""

    def __init__(
        self,
        function: Callable[..., Any],
        shapes: Shapes,
        gradient: Gradient | None,
        returns: Callable[[list[Tensor], Arguments], Any],
        differentiable: bool,
    ) -> None:
        self.function, self.shapes, self.gradient, self.returns = function, shapes, gradient, returns
        self.name = function.__name__.removeprefix("nsa_")
        parameters = signature(function).parameters
        self.defaults = {name: x.default for name, x in parameters.items() if x.default is not x.empty}
        self.kinds = {name: KINDS[x.annotation] for name, x in parameters.items()}
        schema = ", ".join(f"{kind.schema} {name}" for name, kind in self.kinds.items())
        define(f"{self.name}({schema}, bool needs_grad) -> Tensor[]", self._forward, self._forward_shapes)
        self.forward = getattr(torch.ops.nsa, self.name).default
        if differentiable:
            backward = f"{self.name}_backward(Tensor grad, Tensor[] results, {schema}) -> Tensor[]"
            define(backward, self._backward, self._backward_shapes)
            self.backward = getattr(torch.ops.nsa, f"{self.name}_backward").default
            LIBRARY.impl(f"{self.name}_backward", torch.library.fallthrough_kernel, "Autograd")  # it may use autograd
            LIBRARY.impl(self.name, self._differentiable, "Autograd")
        for device in ("cpu", "cuda"):
            LIBRARY.impl(self.name, partial(self._in_autocast, device), f"Autocast{device.upper()}")

    def dispatched(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The function's results, by the operator."""
        x: Arguments = {**self.defaults, **dict(zip(tuple(self.kinds)[: len(args)], args, strict=True)), **kwargs}
        results = self.forward(*(kind.encode(x[name]) for name, kind in self.kinds.items()), False)
        return self.returns(results, x)

    def autocasted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The function's results, computed in the dtype that autocast asks for."""
        device = next((x.device for x in _flat([*args, *kwargs.values()])), torch.device("cpu"))
        dtype = autocast_dtype(device)
        if dtype is None:
            return self.function(*args, **kwargs)
        with torch.autocast(device.type, enabled=False):
            return self.function(*cast(args, dtype), **{name: cast(x, dtype) for name, x in kwargs.items()})

    def named(self, arguments: Sequence[Any]) -> Arguments:
        """The function's arguments of the operator's."""
        return {name: kind.decode(x) for (name, kind), x in zip(self.kinds.items(), arguments, strict=True)}

    def _in_autocast(self, device: str, *arguments: Any) -> list[Tensor]:
        dtype = autocast_dtype(torch.device(device))
        with torch.autocast(device, enabled=False):
            return self.forward(*(arguments if dtype is None else cast(arguments, dtype)))  # type: ignore[no-any-return]

    def _forward(self, *arguments: Any) -> list[Tensor]:
        with _kept(arguments[-1]) as kept:
            results = _flat([self.function(**self.named(arguments[:-1]))])
        return _owned([*results, *(kept or [])], arguments)

    def _forward_shapes(self, *arguments: Any) -> list[Tensor]:
        return self.shapes(self.named(arguments[:-1]), arguments[-1])

    def _backward(self, grad: Tensor, results: list[Tensor], *arguments: Any) -> list[Tensor]:
        with _kept(True):
            found = self.gradient(grad, results, self.named(arguments)) if self.gradient else None
        return _owned(self._by_autograd(grad, arguments) if found is None else found, [grad, results, *arguments])

    def _by_autograd(self, grad: Tensor, arguments: Sequence[Any]) -> list[Tensor]:
        with torch.enable_grad():
            tensors = [x.detach().requires_grad_(x.is_floating_point()) for x in _flat(arguments)]
            results = self.function(**self.named(_filled(arguments, iter(tensors))))
            leaves = [x for x in tensors if x.requires_grad]
            o = _flat([results])[0]
            if not o.requires_grad:
                return [torch.zeros_like(x) for x in leaves]
            found = torch.autograd.grad(o, leaves, grad, allow_unused=True)
        return [torch.zeros_like(x) if y is None else y for x, y in zip(leaves, found, strict=True)]

    @staticmethod
    def _backward_shapes(grad: Tensor, results: list[Tensor], *arguments: Any) -> list[Tensor]:
        return [x.new_empty(x.shape) for x in _flat(arguments) if x.is_floating_point()]

    def _differentiable(self, *arguments: Any) -> list[Tensor]:
        tensors = _flat(arguments)
        if not (needs_grad(tensors) or forward_ad._current_level >= 0):  # which is refused
            with below_autograd():
                return self.forward(*arguments)  # type: ignore[no-any-return]
        return list(_Differentiable.apply(self, _filled(arguments, iter([_Hole()] * len(tensors))), *tensors))


class _Differentiable(torch.autograd.Function):
    """An operator with its gradient, for whoever follows operators."""

    @staticmethod
    def forward(ctx: Any, of: Operator, arguments: list[Any], *tensors: Tensor) -> tuple[Tensor, ...]:
        with below_autograd():
            results = of.forward(*_filled(arguments[:-1], iter(tensors)), True)
        ctx.save_for_backward(*tensors, *results)
        ctx.of, ctx.arguments, ctx.count = of, arguments[:-1], len(tensors)
        ctx.mark_non_differentiable(*results[1:])
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # asked for once: a checkpoint computes them again for each
        tensors, results = saved[: ctx.count], saved[ctx.count :]
        found = iter(ctx.of.backward(grad, list(results), *_filled(ctx.arguments, iter(tensors))))
        return None, None, *(next(found) if x.is_floating_point() else None for x in tensors)


def define(schema: str, run: Callable[..., Any], shapes: Callable[..., Any], tags: Sequence[torch.Tag] = ()) -> None:
    """Define an operator by its schema, what runs it on any device, and what runs it on fake tensors."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=tuple(tags))
    LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    register_fake(f"nsa::{name}", shapes, lib=LIBRARY)


def _owned(results: Iterable[Tensor], arguments: Iterable[Any]) -> list[Tensor]:
    """The results, contiguous, each in memory of its own: what an operator gives is new."""
    taken = {x.untyped_storage().data_ptr() for x in _flat(arguments)}
    found = []
    for x in results:
        x = x.detach().contiguous()
        x = x.clone() if x.untyped_storage().data_ptr() in taken else x
        taken.add(x.untyped_storage().data_ptr())
        found.append(x)
    return found
