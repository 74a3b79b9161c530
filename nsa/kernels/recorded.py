"""What a function of tensors launches, recorded at its second call of a kind and repeated at later ones.

Up to some ten thousand tokens a GPU is done with Native Sparse Attention sooner than Python is with what it decides
before and between the launches. But all of that follows from a call's kind, which a plan stands for (`nsa.plans`). So
its second call is recorded: allocations, launches, PyTorch's operations, in turn. Of that a function is made, in Python
of its own, that only does these again, with the addresses of its own tensors; what nothing reads any more is freed at
once, but for small tensors, which share an allocation. Unlike in a CUDA graph the tensors may be others at every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.dlpack import from_dlpack, to_dlpack

from nsa import host
from nsa.contexts import held
from nsa.kernels.common import direct, streams
from nsa.kernels.common.launch import LISTENER, Launched
from nsa.kernels.common.tma import of_kind
from nsa.kernels.tuning.lookup import COMPILING_FOR, TRIAL
from nsa.library import ReverseOnly, differentiable_once
from nsa.plans import ACTIVE, Key, layout, sharing

Tensors = tuple[Tensor | None, ...]
Settings = tuple[Any, ...]
One, Other = TypeVar("One"), TypeVar("Other")

ALLOCATIONS = frozenset(
    getattr(torch.ops.aten, name) for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)

SEEN, NEVER = "called once", "to be called each time"
"""What a plan knows of a function that is not recorded."""

SMALL = 1 << 20
"""Bytes of a tensor that has its place in one allocation with others, where only kernels read it: allocating it and
letting it go costs the host as much as half a launch."""

ALIGNMENT = 512
"""Bytes at whose multiples each has its place, as PyTorch's allocator does it."""

MOST_GRADIENTS = 16
"""Kinds of incoming gradients that one plan records."""


# --- calling ---


def repeated(
    name: str, function: Callable[..., Tensors], tensors: Tensors, settings: Settings, kind: Key = ()
) -> Tensors:
    """function(*tensors, *settings), which belongs to the active plan; from its third call on what it launched.

    The function decides by the plan's facts and `kind` only, runs nothing that autocast would change, and does not look
    into tensors on the CPU. Where it asks a GPU for a value it is called each time.
    """
    plan = ACTIVE.get()
    if plan is None or COMPILING_FOR.get() or TRIAL.get() or LISTENER.get():
        return function(*tensors, *settings)
    captures, key = plan.enter(), (name, *kind)
    found = plan.recorded.get(key)
    if callable(found):
        return found(*tensors)  # type: ignore[no-any-return]
    if found is SEEN and not captures:
        plan.recorded[key] = NEVER  # if it fails
        results, repeat = record(function, tensors, settings)
        if repeat is not None:
            plan.recorded[key] = repeat
        return results
    if found is None and not captures and len(plan.recorded) < MOST_GRADIENTS:
        plan.recorded[key] = SEEN
    return function(*tensors, *settings)


def record(
    function: Callable[..., Tensors], tensors: Tensors, settings: Settings
) -> tuple[Tensors, Callable[..., Tensors] | None]:
    """The function's results, and what repeats it for other tensors of the kind, if anything can."""
    recorder = Recorder(tensors)
    launches, uses = held(LISTENER, recorder.launched), held(host.USED, recorder.used_numbers)
    with launches, uses, held(_RECORDER, recorder), recorder:
        results = function(*recorder.tensors, *settings)
    return recorder.finish(tensors, results)


_RECORDER: ContextVar[Recorder | None] = ContextVar("nsa_recorder", default=None)


def beside(one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """The results of both, neither of which reads what the other makes. What is recorded of `other` is repeated on a
    second stream beside `one`; both hold what they make until both are done. Within another `beside` it is `in_turn`.

    The allocator, which knows of one stream, may give `other` the room that an operation of PyTorch in `one` had for
    itself (a sort has) and may still use: where `one` has such an operation, `other` allocates nothing.
    """
    recorder = _RECORDER.get()
    return in_turn(one, other) if recorder is None else recorder.beside(one, other)


def in_turn(one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """The results of both, on one stream."""
    return one(), other()


@dataclass(frozen=True)
class Differentiable:
    """A function (tensors, settings) -> results and its gradient, both repeated.

    Attributes:
        name: of the function.
        forward: gives the results; of those the caller gets the first one, which is differentiable, and `also`.
        backward: (gradient of the first result, kept tensors, settings) -> gradients of the tensors.
        keep: (tensors, results) -> what is kept for it.
        also: from which result on the caller gets the rest.
        selective: whether `backward` is also told, at last, of which tensors a gradient is wanted.
    """

    name: str
    forward: Callable[..., Tensors]
    backward: Callable[..., Tensors]
    keep: Callable[[Tensors, Tensors], Tensors] = lambda tensors, results: (*tensors, *results)
    also: int = 1
    selective: bool = False

    def __call__(self, tensors: Tensors, settings: Settings) -> Tensors:
        """The results, differentiable where a gradient is wanted."""
        wanted = torch.is_grad_enabled() and (
            any(x is not None and x.requires_grad for x in tensors) or forward_ad._current_level >= 0
        )  # forward-mode gradients are refused there
        if wanted:
            return _Differentiable.apply(self, settings, *tensors)[:-1]  # type: ignore[no-any-return]
        return self.given(repeated(self.name, self.forward, tensors, settings))

    def given(self, results: Tensors) -> Tensors:
        """Those of the results that the caller gets."""
        return results[0], *results[self.also :]


class _Differentiable(ReverseOnly):
    @staticmethod
    def forward(ctx: Any, of: Differentiable, settings: Settings, *tensors: Tensor | None) -> Tensors:
        results = repeated(of.name, of.forward, tensors, settings)
        kept = of.keep(tensors, results)
        given = of.given(results)
        own = given[0].new_empty(0)  # type: ignore[union-attr]  # a result, which leads to inputs that are not kept too
        ctx.save_for_backward(*kept, own)
        ctx.of, ctx.settings, ctx.plan, ctx.kept_as = of, settings, ACTIVE.get(), _places(kept)
        ctx.context = copy_context()
        ctx.mark_non_differentiable(*given[1:])
        ctx.set_materialize_grads(False)  # zeros for what has no gradient would be launches
        return *given, own

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, saved: Tensors, do: Tensor | None, *_: Tensor | None) -> Tensors:
        """On a thread of autograd's own, where a GPU computes: in the context of the call."""
        if do is None:
            return (None,) * len(ctx.needs_input_grad)
        return ctx.context.copy().run(_gradients, ctx, saved[:-1], do)  # type: ignore[no-any-return]


def _gradients(ctx: Any, kept: Tensors, do: Tensor) -> Tensors:
    of, plan = ctx.of, ctx.plan
    wanted = (ctx.needs_input_grad[2:],) if of.selective else ()
    settings = *ctx.settings, *wanted
    if plan is None:
        return None, None, *of.backward(do, *kept, *settings)
    if plan.request.packed:
        host.raise_noted(plan.device)
    kind = *layout(do), *wanted, next((at for at, x in enumerate(kept) if x is do), None)
    if _places(kept) != ctx.kept_as:  # a hook brought others back, of which the plan's key says nothing
        kind = *kind, sharing(kept), *(None if x is None else layout(x) for x in kept)
    found = plan.within(lambda: repeated(of.name + "_backward", of.backward, (do, *kept), settings, kind))
    return None, None, *found


def _places(tensors: Tensors) -> list[Key | None]:
    """Where tensors lie, and how: memory that was freed meanwhile may be given to another layout."""
    return [None if x is None else (x.data_ptr(), x.stride()) for x in tensors]


# --- recording ---


class _Root(NamedTuple):
    """A tensor that others are parts of: an input, or one that was made on the way."""

    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype


class _Step(NamedTuple):
    """A line of a program, which tensors it names, which of them it makes, and of an allocation how many bytes."""

    line: str
    used: set[int]
    made: tuple[int, ...] = ()
    size: int | None = None


class Recorder(TorchDispatchMode):
    """Writes down as a program what a function does, while it does it.

    Tensors are told apart by their storage: what lies in that of an input or of something made on the way is a part of
    it; any other was there before, and is the same in every call of the kind. Nothing is held meanwhile: weak
    references keep a storage's address from being given to another, not its memory.

    Attributes:
        tensors: what the function is to be called with: the inputs, each in a storage of its own.
        refused: why the function cannot be repeated.
    """

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self.refused: str | None = None
        self._launching = False
        self._roots: list[_Root] = []
        self._slots: dict[int, int] = {}
        self._storages: list[StorageWeakRef] = []
        self._by_address: set[int] = set()
        self._as_tensors: set[int] = set()
        self._steps: list[_Step] = []
        self._stream, self._forked, self._beside = False, False, False
        device = next(x for x in tensors if x is not None).device
        self._names: dict[str, Any] = {
            "part": _part, "descriptor": of_kind, "now": partial(direct.now, device.index or 0),
            "fork": partial(streams.fork, device), "empty": _empty_on(device), "bytes": torch.uint8,
        }  # fmt: skip
        self._named: dict[Any, str] = {}
        aliases = {id(x): _alias(x) for x in tensors if x is not None}
        self.tensors = tuple(None if x is None else aliases[id(x)] for x in tensors)
        first = {id(x): at for at, x in reversed(list(enumerate(tensors))) if x is not None}  # one may be given twice
        self._parameters = [
            self._add(aliases[id(x)]) if first.get(id(x)) == at else None for at, x in enumerate(tensors)
        ]
        self._inputs = len(self._roots)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """It is in no traced program; that PyTorch keeps it out of one would import the compiler, seconds."""
        return False

    def used_numbers(self) -> None:
        """A tensor's numbers decide, which the host may know already."""
        self.refused = self.refused or "it depends on what a tensor holds"

    # --- what happens ---

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        found = function(*arguments, **named)
        if not self._launching:
            self._operation(function, arguments, named, found)
        return found

    def launched(self, kernel: Launched, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Launch a kernel, and note it."""
        chosen = kernel.of(arguments)
        self._launching = True  # an interpreted kernel is made of operations
        try:
            with held(LISTENER, None):
                compiled = chosen[grid](*arguments, **constants)
        finally:
            self._launching = False
        used: set[int] = set()
        step = None
        if kernel.repeats and compiled is not None:
            rest = [constants[name] for name in chosen.arg_names[len(arguments) :]]
            values = [self._addressed(x, used) for x in (*arguments, *rest)]
            stream = direct.Text("two.handle") if self._beside else direct.STREAM
            step = direct.launch(compiled, (*grid, 1, 1)[:3], values, self._name, stream)
            self._stream = self._stream or step is not None
        if step is None:
            step = self._call(partial(chosen[grid], **constants), arguments, used)
        self._steps.append(_Step(step, used))

    def beside(self, one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
        """Note what both do, the other on a stream beside."""
        if self._forked:
            return in_turn(one, other)
        self._forked = True
        self._steps.append(_Step("two = fork()", set()))
        start = len(self._steps)
        first = one()
        middle = len(self._steps)
        self._beside = True
        try:
            second = other()
        finally:
            self._forked, self._beside = False, False
        apart, used = (set[int]().union(*(step.used for step in self._steps[at:])) for at in (middle, start))
        if any(apart & {*step.made} for step in self._steps[start:middle]):
            self.refused = "it reads what is made beside it"
        self._steps.append(_Step("two.join()", used))  # nothing is freed before: the other stream may read it
        return first, second

    def _operation(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any], found: Any) -> None:
        results = (found,) if isinstance(found, Tensor) else found
        self.refused = self.refused or _not_repeatable(function, arguments, named, results)
        if self.refused:
            return
        before = {_storage(x) for x in arguments if isinstance(x, Tensor)} - self._slots.keys()
        if any(_storage(x) in before for x in results) and function._schema.is_mutable:
            self.refused = f"{function} changes what was there before"
        known = before | self._slots.keys()
        new = [_storage(x) not in known for x in results]
        if not any(new) and not function._schema.is_mutable:
            return  # a view of what is there
        used: set[int] = set()
        made = tuple(self._add(x) for x, fresh in zip(results, new, strict=True) if fresh)
        if function.overloadpacket in ALLOCATIONS and made:
            empty, dtype = self._name(_empty_on(found.device)), self._name(found.dtype)
            line = f"t{made[0]} = {empty}({tuple(found.shape)}, {found.stride()}, {dtype})"
            self._steps.append(_Step(line, {*made}, made, found.untyped_storage().nbytes()))
            return
        names = iter(made)
        targets = [f"t{next(names)}" if fresh else "_" for fresh in new]
        taken = f"{', '.join(targets)}{',' if not isinstance(found, Tensor) else ''} = " if made else ""
        call = self._call(partial(function, **named) if named else function, arguments, used)
        self._steps.append(_Step(taken + call, used | {*made}, made))

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], used: set[int]) -> str:
        values = [self._name(function), *(self._value(x, used) for x in arguments)]
        return f"two.on({', '.join(values)})" if self._beside else f"{values[0]}({', '.join(values[1:])})"

    # --- what is written down ---

    def finish(self, tensors: Tensors, results: Tensors) -> tuple[Tensors, Callable[..., Tensors] | None]:
        """The results of a function that was to be called with `tensors`, and what repeats it."""
        kept: set[int] = set()
        places = [self._value(x, kept) for x in results]
        inputs = {f"t{slot}": x for slot, x in zip(self._parameters, tensors, strict=True) if slot is not None}
        of_inputs = [x is not None and self._slots.get(_storage(x), self._inputs) < self._inputs for x in results]
        own = tuple(
            eval(place, self._names, inputs) if given else x
            for x, place, given in zip(results, places, of_inputs, strict=True)
        )
        return own, None if self.refused else self._program(places, kept | {*range(self._inputs)})

    def _program(self, places: list[str], kept: set[int]) -> Callable[..., Tensors]:
        room, at = self._room()
        steps = [step for step in self._steps if not at.keys() & {*step.made}]
        lines: list[str] = []
        kept = kept | at.keys()
        for step in reversed(steps):
            done = sorted(step.used - kept)
            lines += [" = ".join([*(f"t{slot}" for slot in done), "None"])] if done else []
            lines += [*self._addresses(step.made), step.line]
            kept |= step.used
        lines += [f"a{slot} = room + {offset}" for slot, offset in at.items()]
        lines += ["room = parts.data_ptr()", f"parts = empty(({room},), (1,), bytes)"] if at else []
        lines += reversed(self._addresses(range(self._inputs)))
        parameters = [f"_{at}" if slot is None else f"t{slot}" for at, slot in enumerate(self._parameters)]
        launches = ["stream, enter, leave = now()"] if self._stream else []
        body = [*launches, *reversed(lines), f"return ({''.join(x + ',' for x in places)})"]
        source = "\n ".join([f"def repeat({', '.join(parameters)}):", *body])
        exec(compile(source, "<recorded launches>", "exec"), self._names)
        return self._names.pop("repeat")  # type: ignore[no-any-return]

    def _room(self) -> tuple[int, dict[int, int]]:
        """Bytes for small tensors that only launches name, by their addresses, and where each of them has its place."""
        room, at = 0, {}
        for step in self._steps:
            if step.size is not None and step.size <= SMALL and not self._as_tensors & {*step.made}:
                at[step.made[0]] = room
                room += -(-step.size // ALIGNMENT) * ALIGNMENT
        return room, at

    def _addresses(self, slots: Any) -> list[str]:
        return [f"a{slot} = t{slot}.data_ptr()" for slot in slots if slot in self._by_address]

    def _addressed(self, x: Any, used: set[int]) -> Any:
        """An argument of a compiled kernel: of a tensor the program says its address."""
        if isinstance(x, Tensor):
            return direct.Text(self._tensor(x, used, True))
        if isinstance(getattr(x, "base", None), Tensor):
            return direct.Described(x, direct.Text(self._tensor(x.base, used, True)))
        return x

    def _value(self, x: Any, used: set[int]) -> str:
        """An argument as the program has it."""
        if isinstance(x, Tensor):
            return self._tensor(x, used, False)
        if isinstance(getattr(x, "base", None), Tensor) and _storage(x.base) in self._slots:
            held = {name: y for name, y in vars(x).items() if name != "base"}
            return f"descriptor(*{self._name((type(x), held), str(held))}, {self._tensor(x.base, used, False)})"
        if x is None or type(x) in (int, bool, str) or (type(x) is float and math.isfinite(x)):
            return repr(x)
        return self._name(x)

    def _tensor(self, x: Tensor, used: set[int], address: bool) -> str:
        slot = self._slots.get(_storage(x))
        if slot is None:
            name = self._name(x)
            return str(x.data_ptr()) if address else name
        used.add(slot)
        if not address:
            self._as_tensors.add(slot)
        root = self._roots[slot]
        if root.dtype != x.dtype:
            self.refused = f"a tensor is read as {root.dtype} and as {x.dtype}"
        offset = x.storage_offset() - root.offset
        if address:
            self._by_address.add(slot)
            return f"a{slot} + {offset * x.element_size()}" if offset else f"a{slot}"
        if not offset and x.shape == root.shape and x.stride() == root.stride:
            return f"t{slot}"
        return f"part(t{slot}, {tuple(x.shape)}, {x.stride()}, {offset})"

    def _add(self, x: Tensor) -> int:
        self._slots[_storage(x)] = len(self._roots)
        self._storages.append(StorageWeakRef(x.untyped_storage()))
        self._roots.append(_Root(x.shape, x.stride(), x.storage_offset(), x.dtype))
        return len(self._roots) - 1

    def _name(self, x: Any, like: Any = None) -> str:
        """What the program calls x: the same for all that are `like` each other."""
        key = id(x) if like is None else like
        name = self._named.setdefault(key, f"c{len(self._names)}")
        self._names.setdefault(name, x)  # held as long as the program
        return name


def _alias(x: Tensor) -> Tensor:
    """The same memory as a storage of its own."""
    return from_dlpack(to_dlpack(x.detach())).as_strided(x.shape, x.stride())


def _storage(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _part(x: Tensor, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Tensor:
    return x.as_strided(shape, stride, x.storage_offset() + offset)


@lru_cache
def _empty_on(device: torch.device) -> Callable[..., Tensor]:
    """New tensors on the current device of this type: of shape, strides and dtype. As Inductor's programs make them,
    which costs the host a third, where this PyTorch has that.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    fast: Callable[..., Tensor] | None = getattr(guards, f"_empty_strided_{device.type}", None)
    return fast or (lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype, device=device))


def _not_repeatable(function: Any, arguments: tuple[Any, ...], named: dict[str, Any], results: Any) -> str | None:
    """Why an operation cannot be a step."""
    if not isinstance(results, (tuple, list)) or not all(isinstance(x, Tensor) for x in results):
        return f"{function} gives the host a value"
    if torch.Tag.dynamic_output_shape in function.tags:
        return f"{function} has results whose size depends on values"
    if any(isinstance(x, Tensor) and x.is_cuda for x in arguments) and not all(x.is_cuda for x in results):
        return f"{function} brings a tensor to the host"
    if any(isinstance(x, Tensor) for x in named.values()):
        return f"{function} takes a tensor by name"
    if any(isinstance(x, (tuple, list)) and any(isinstance(y, Tensor) for y in x) for x in arguments):
        return f"{function} takes a list of tensors"
    return None
