"""The operations as PyTorch knows them: `torch.ops.nsa.*`, with a schema, shapes, a gradient and autocast.

A plain call stays a plain call of Python: it is checked, routed and computed, and autograd follows it, as ever. Where
something follows or transforms the program (`torch.compile`, export, FakeTensor, a checkpoint that chooses by operator,
any other dispatch mode, a tensor subclass), the operator is called instead, whose schema is the function's own
signature, and does the same without a graph; its gradient is an operator of its own, `nsa::NAME_backward`. No semantics
stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from inspect import signature
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from nsa.config import NSAConfig
from nsa.host import is_compiling
from nsa.phi import MlpPhi, WeightedPhi

P = ParamSpec("P")
R = TypeVar("R")
Arguments = dict[str, Any]
"""Of a public function, by name."""

LIBRARY = torch.library.Library("nsa", "DEF")
below_autograd = torch._C._AutoDispatchBelowAutograd
above_autograd, AUTOGRAD = torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey.AutogradFunctionality
"""Where a dispatch mode has called an operator, autograd is off, whatever `torch.enable_grad` says."""
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
    return [] if phi is None else list(vars(phi).values())


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
    **{name: Kind(name) for name in ("Tensor", "float", "int", "bool")},
    **{f"{name} | None": Kind(f"{name}?") for name in ("Tensor", "float")},
    "Tensor | Triple": Kind("Tensor[]", _of_branches, lambda x: x[0] if len(x) == 1 else tuple(x)),
    "tuple[Tensor, Tensor] | None": Kind("Tensor[]", lambda x: list(x or ()), lambda x: tuple(x) or None),
    "Phi | None": Kind("Tensor[]", _of_phi, _to_phi),
    "NSAConfig": Kind("int[]", _of_config, lambda x: _config(*x)),
    "routing.BackendChoice": Kind("str[]", _of_backend, _to_backend),
}
"""By the text of the annotation."""


def flat(arguments: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments and in their lists, in order."""
    found: list[Tensor] = []
    for x in arguments:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += flat(x)
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


def followed() -> bool:
    """Whether something else than plain execution goes on: then it must see an operator. Every call asks."""
    return is_compiling() or modes() > 0 or transforms()


def intercepted(arguments: Iterable[Any]) -> bool:
    """Whether that is so, or tensors are given that follow what is done with them."""
    return followed() or _follow(arguments)


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


WIDE = ("lse",)
"""Arguments that are left as they are: a result of another operation that is never narrow."""


def cast(x: Any, dtype: torch.dtype) -> Any:
    """The floating tensors in x, lists and bundles too, in this dtype; not fp64, which autocast leaves alone."""
    if isinstance(x, Tensor):
        return x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x
    if isinstance(x, (list, tuple)):
        return type(x)(cast(y, dtype) for y in x)
    return type(x)(*(cast(y, dtype) for y in vars(x).values())) if isinstance(x, (WeightedPhi, MlpPhi)) else x


# --- what has no gradient ---


class ReverseOnly(torch.autograd.Function):
    """One that has no forward-mode gradient, and says so: PyTorch's own words are for whoever writes such a class."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> NoReturn:
        raise RuntimeError("nsa: forward-mode gradients are not computed; those of a backward pass are")


class _Refusing(ReverseOnly):
    """The identity, whose backward is an error."""

    @staticmethod
    def forward(ctx: Any, sentence: str, x: Tensor, *inputs: Tensor) -> Tensor:
        ctx.sentence = sentence
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        raise RuntimeError(ctx.sentence)


def refusing(sentence: str, x: Tensor, inputs: Iterable[Any]) -> Tensor:
    """x, computed from `inputs` without a graph; a backward pass through it to any of these is an error."""
    if not torch.is_grad_enabled():
        return x
    followed = [y for y in flat(inputs) if y.requires_grad]
    return _Refusing.apply(sentence, x, *followed) if followed else x  # type: ignore[no-any-return]


def differentiable_once(backward: Callable[..., Sequence[Tensor | None]]) -> Callable[..., Sequence[Tensor | None]]:
    """An autograd function's backward (context, saved tensors, gradients), whose own gradient is an error.

    PyTorch's `once_differentiable` says so only to who asks for the gradients of all: of a gradient that reaches the
    inputs on other ways too (a layer's gates, say) it silently leaves this way out.
    """

    @wraps(backward)
    def called(ctx: Any, *gradients: Tensor) -> Sequence[Tensor | None]:
        saved = ctx.saved_tensors  # asked for once: a checkpoint computes them again for each
        if not torch.is_grad_enabled():
            return backward(ctx, saved, *gradients)
        with torch.no_grad():
            found = backward(ctx, saved, *gradients)
        inputs, sentence = (*gradients, *saved), "nsa: a gradient of a gradient is not computed"
        return tuple(None if x is None else refusing(sentence, x, inputs) for x in found)

    return called


# --- operators ---


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
    """A function, its schema, and its operators `nsa::NAME` and `nsa::NAME_backward`; both give a list of tensors.

    A subclass says what they compute; see `nsa.operations.Operation`. Its first result alone is differentiable.
    """

    def __init__(self, function: Callable[..., Any], differentiable: bool) -> None:
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
            LIBRARY.impl(self.name, apart(self._differentiable), "Autograd")
        LIBRARY.impl(self.name, self._transformed, "FuncTorchBatched")
        for device in ("cpu", "cuda"):
            LIBRARY.impl(self.name, apart(partial(self._in_autocast, device)), f"Autocast{device.upper()}")

    def results(self, x: Arguments, keep: bool) -> list[Tensor]:
        """The function's results for these arguments; then, if the flag says so, what its gradient needs."""
        raise NotImplementedError

    def shapes(self, x: Arguments, keep: bool) -> list[Tensor]:
        """New tensors like these."""
        raise NotImplementedError

    def gradient(self, grad: Tensor, results: list[Tensor], x: Arguments) -> Sequence[Tensor] | None:
        """Gradients of the floating tensors among the arguments, in order, by that of the first result; None where that
        is not known, and autograd follows the function, run once more.
        """
        raise NotImplementedError

    def dispatched(self, x: Arguments) -> list[Tensor]:
        """The function's results, by the operator."""
        return self.forward(*(kind.encode(x[name]) for name, kind in self.kinds.items()), False)  # type: ignore[no-any-return]

    def autocasted(self, x: Arguments) -> list[Tensor]:
        """The function's results, computed in the dtype that autocast asks for."""
        device = next((y.device for y in flat(x.values())), torch.device("cpu"))
        dtype = autocast_dtype(device)
        if dtype is None:
            return self.results(x, False)
        with torch.autocast(device.type, enabled=False):
            return self.results({name: y if name in WIDE else cast(y, dtype) for name, y in x.items()}, False)

    def _named(self, arguments: Sequence[Any]) -> Arguments:
        """The function's arguments of the operator's."""
        return {name: kind.decode(x) for (name, kind), x in zip(self.kinds.items(), arguments, strict=True)}

    def _in_autocast(self, device: str, *arguments: Any) -> list[Tensor]:
        dtype = autocast_dtype(torch.device(device))
        named = zip((*self.kinds, "needs_grad"), arguments, strict=True)
        with torch.autocast(device, enabled=False):
            return self.forward(*(y if dtype is None or name in WIDE else cast(y, dtype) for name, y in named))  # type: ignore[no-any-return]

    def _forward(self, *arguments: Any) -> list[Tensor]:
        return _owned(self.results(self._named(plainly(arguments[:-1])), arguments[-1]), arguments)

    def _forward_shapes(self, *arguments: Any) -> list[Tensor]:
        return self.shapes(self._named(arguments[:-1]), arguments[-1])

    def _backward(self, grad: Tensor, results: list[Tensor], *arguments: Any) -> list[Tensor]:
        grad, results, *arguments = plainly((grad, results, *arguments))  # type: ignore[assignment]
        found = self.gradient(grad, results, self._named(arguments))
        return _owned(self._by_autograd(grad, arguments) if found is None else found, [grad, results, *arguments])

    def _by_autograd(self, grad: Tensor, arguments: Sequence[Any]) -> list[Tensor]:
        with above_autograd(AUTOGRAD, False), torch.enable_grad():
            tensors = [x.detach().requires_grad_(x.is_floating_point()) for x in flat(arguments)]
            o = self.results(self._named(_filled(arguments, iter(tensors))), False)[0]
            leaves = [x for x in tensors if x.requires_grad]
            found = torch.autograd.grad(o, leaves, grad, allow_unused=True)
        return [torch.zeros_like(x) if y is None else y for x, y in zip(leaves, found, strict=True)]

    @staticmethod
    def _backward_shapes(grad: Tensor, results: list[Tensor], *arguments: Any) -> list[Tensor]:
        return [x.new_empty(x.shape) for x in flat(arguments) if x.is_floating_point()]

    def _differentiable(self, *arguments: Any) -> list[Tensor]:
        tensors = flat(arguments)
        wanted = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if not (wanted or forward_ad._current_level >= 0):  # which is refused
            with below_autograd():
                return self.forward(*arguments)  # type: ignore[no-any-return]
        if transforms():
            self._transformed()
        return list(_Differentiable.apply(self, _filled(arguments, iter([_Hole()] * len(tensors))), *tensors))

    def _transformed(self, *_: Any) -> NoReturn:
        raise RuntimeError(f"{self.name}: torch.func's grad, vmap and jvp are not supported; torch.autograd is")


class _Differentiable(ReverseOnly):
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
    @differentiable_once
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        tensors, results = saved[: ctx.count], saved[ctx.count :]
        found = iter(ctx.of.backward(grad, list(results), *_filled(ctx.arguments, iter(tensors))))
        return None, None, *(next(found) if x.is_floating_point() else None for x in tensors)


def define(schema: str, run: Callable[..., Any], shapes: Callable[..., Any], tags: Sequence[torch.Tag] = ()) -> None:
    """Define an operator by its schema, what runs it on any device, and what runs it on fake tensors.

    What runs it stays `apart`: a graph that ends before an operator would else be followed by those of its insides.
    """
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=tuple(tags))
    LIBRARY.impl(name, apart(run), "CompositeExplicitAutograd")
    register_fake(f"nsa::{name}", shapes, lib=LIBRARY)


def plainly(arguments: Iterable[Any]) -> list[Any]:
    """The arguments with plain tensors in the places of those of a subclass that follows functions only: what follows
    operators too is none of these any more where one is run.
    """
    arguments = list(arguments)
    if not _follow(arguments):
        return arguments
    return _filled(arguments, iter([x.as_subclass(Tensor) for x in flat(arguments)]))


def _owned(results: Iterable[Tensor], arguments: Iterable[Any]) -> list[Tensor]:
    """The results, contiguous, each in memory of its own: what an operator gives is new."""
    taken = {x.untyped_storage().data_ptr() for x in flat(arguments)}
    found = []
    for x in results:
        x = x.detach().contiguous()
        x = x.clone() if x.untyped_storage().data_ptr() in taken else x
        taken.add(x.untyped_storage().data_ptr())
        found.append(x)
    return found
