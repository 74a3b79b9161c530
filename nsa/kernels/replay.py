"""Functions of tensors that cost the host little when they are called again with tensors of the same kind.

Up to some ten thousand tokens a GPU is done with Native Sparse Attention sooner than Python is with what it decides
before and between the launches. But all of that is decided by sizes, strides and settings: the second call of a kind
is recorded (allocations, launches, PyTorch's operations, in turn), and later ones only do these again, with the
addresses of their own tensors. Unlike in a CUDA graph the tensors may be other ones at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nsa import host
from nsa.bounded import Bounded
from nsa.kernels.common.constants import capturing
from nsa.kernels.common.launch import ALIGNED, LISTENER, Launched
from nsa.kernels.tuning.lookup import COMPILING_FOR, TRIAL

MOST = 64
"""Kinds of calls that one function remembers."""

Tensors = tuple[Tensor | None, ...]
Slots = list[Any]
"""The tensors of a call: its inputs, then what it has made so far."""

ALLOCATIONS = frozenset(
    getattr(torch.ops.aten, name) for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)


# --- what a call consists of ---


@dataclass(frozen=True)
class _Place:
    """A tensor as a part of the one in `slot`, from `offset` of its elements on."""

    slot: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    whole: bool
    bytes_of: int

    def tensor(self, slots: Slots) -> Tensor:
        x: Tensor = slots[self.slot]
        return x if self.whole else x.as_strided(self.shape, self.stride, x.storage_offset() + self.offset)

    def address(self, slots: Slots) -> int:
        return int(slots[self.slot].data_ptr()) + self.offset * self.bytes_of


Step = Callable[[Slots], None]


@dataclass(frozen=True)
class _Allocation:
    slot: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __call__(self, slots: Slots) -> None:
        slots[self.slot] = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class _Descriptor:
    """A tensor descriptor: its class, what it holds beside its tensor, and the tensor."""

    kind: type
    fixed: dict[str, Any]
    place: _Place

    def filled(self, slots: Slots) -> Any:
        found = self.kind.__new__(self.kind)
        vars(found).update(self.fixed, base=self.place.tensor(slots))
        return found


@dataclass(frozen=True)
class _Call:
    """A launch, or an operation of PyTorch.

    Attributes:
        run: takes the arguments.
        arguments: those that are the same in every call.
        filled: positions and makers of the others.
        made: the slots of the results, in turn; None for one that is nothing new.
    """

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    filled: tuple[tuple[int, Callable[[Slots], Any]], ...]
    made: tuple[int | None, ...] = ()

    def __call__(self, slots: Slots) -> None:
        arguments = list(self.arguments)
        for at, value in self.filled:
            arguments[at] = value(slots)
        found = self.run(*arguments)
        if self.made:
            for slot, x in zip(self.made, (found,) if isinstance(found, Tensor) else found, strict=True):
                if slot is not None:
                    slots[slot] = x


@dataclass(frozen=True)
class _Recipe:
    """The steps of a call, each with the slots that nothing reads after it; and its results.

    `constants` are the tensors that every call reads at the same address.
    """

    steps: tuple[tuple[Step, tuple[int, ...]], ...]
    made: int
    results: tuple[_Place | Tensor | None, ...]
    constants: tuple[Tensor, ...]

    def __call__(self, tensors: Tensors) -> Tensors:
        slots: Slots = [*tensors, *(None,) * self.made]
        for step, done in self.steps:
            step(slots)
            for slot in done:
                slots[slot] = None
        return tuple(x.tensor(slots) if isinstance(x, _Place) else x for x in self.results)


# --- recording ---


class _Recorder(TorchDispatchMode):
    """Notes what a function does, while it does it.

    Tensors are told apart by their storage: what lies in that of an input or of something made on the way is found
    there again; any other was there before, and is the same in every call of the kind.
    """

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self.refused: str | None = None
        self._steps: list[tuple[Step, set[int]]] = []
        self._inputs = len(tensors)
        self._slots: list[Tensor | None] = list(tensors)  # held, so that no two of them have one storage in turn
        self._constants: list[Tensor] = []
        self._launching = False
        self._by_storage: dict[int, int] = {}
        present = [(slot, x) for slot, x in enumerate(tensors) if x is not None]
        for slot, x in sorted(present, key=lambda found: not found[1].numel()):  # what is empty has no address
            self._by_storage.setdefault(_storage(x), slot)

    def used_numbers(self) -> None:
        """A tensor's numbers decide, which the host may know already."""
        self.refused = self.refused or "it depends on what a tensor holds"

    def recipe(self, results: Tensors) -> _Recipe:
        """What was recorded, for a function that returned `results`."""
        places = tuple(x if x is None else self._place(x) or x for x in results)
        kept = {*range(self._inputs), *(x.slot for x in places if isinstance(x, _Place))}
        steps = []
        for step, used in reversed(self._steps):
            steps.append((step, tuple(used - kept)))
            kept |= used
        made = len(self._slots) - self._inputs
        return _Recipe(tuple(reversed(steps)), made, places, tuple(self._constants))

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        found = function(*arguments, **named)
        if not self._launching:
            self._operation(function, arguments, named, found)
        return found

    def launched(self, kernel: Launched, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Launch a kernel, and note it."""
        self._launching = True  # an interpreted kernel is made of operations
        token = LISTENER.set(None)
        try:
            kernel[grid](*arguments, **constants)
        finally:
            LISTENER.reset(token)
            self._launching = False
        run, values = kernel.bound(grid, arguments, constants)
        filled, used = [], set()
        for at, x in enumerate(arguments):
            base = x if isinstance(x, Tensor) else getattr(x, "base", None)
            place = None if base is None else self._place(base)
            if place is None:
                continue
            if x is not base:
                filled.append((at, _Descriptor(type(x), {**vars(x), "base": None}, place).filled))
            else:
                filled.append((at, place.tensor if isinstance(values[at], Tensor) else place.address))
            values[at] = None
            used.add(place.slot)
        self._steps.append((_Call(run, tuple(values), tuple(filled)), used))

    def _operation(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any], found: Any) -> None:
        results = (found,) if isinstance(found, Tensor) else found
        self.refused = self.refused or _not_repeatable(function, arguments, named, results)
        if self.refused:
            return
        before = {_storage(x) for x in arguments if isinstance(x, Tensor)} - self._by_storage.keys()
        if any(_storage(x) in before for x in results) and function._schema.is_mutable:
            self.refused = f"{function} changes what was there before"
        known = before | self._by_storage.keys()
        new = [_storage(x) not in known for x in results]
        if not any(new) and not function._schema.is_mutable:
            return  # a view of what is there
        values, filled, slots = list(arguments), [], set()
        for at, x in enumerate(arguments):
            place = self._place(x) if isinstance(x, Tensor) else None
            if place is not None:
                filled.append((at, place.tensor))
                values[at] = None
                slots.add(place.slot)
        made = tuple(self._add(x) if fresh else None for x, fresh in zip(results, new, strict=True))
        slots |= {slot for slot in made if slot is not None}
        step: Step = _Call(partial(function, **named), tuple(values), tuple(filled), made)
        if function.overloadpacket in ALLOCATIONS and made[0] is not None:
            step = _Allocation(made[0], tuple(found.shape), found.stride(), found.dtype, found.device)
        self._steps.append((step, slots))

    def _add(self, x: Tensor) -> int:
        self._slots.append(x)
        self._by_storage[_storage(x)] = len(self._slots) - 1
        return len(self._slots) - 1

    def _place(self, x: Tensor) -> _Place | None:
        slot = self._by_storage.get(_storage(x))
        root = None if slot is None else self._slots[slot]
        if slot is None or root is None:
            self._constants.append(x)
            return None
        if root.dtype != x.dtype:
            self.refused = f"a tensor is read as {root.dtype} and as {x.dtype}"
        offset = x.storage_offset() - root.storage_offset()
        whole = not offset and x.shape == root.shape and x.stride() == root.stride()
        return _Place(slot, offset, tuple(x.shape), x.stride(), whole, x.element_size())


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


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


# --- calling ---

_SEEN, _NEVER = object(), object()


@dataclass
class Replayed:
    """A function (tensors, settings) -> tensors whose third and later calls of a kind replay the second.

    The function decides by shapes, strides, dtypes and its hashable settings only, runs nothing that autocast would
    change, and does not look into tensors on the CPU. Where it asks a GPU for a value it is called each time.
    """

    function: Callable[..., Tensors]
    _known: Bounded[Any, Any] = field(default_factory=lambda: Bounded(MOST))

    def __call__(self, tensors: Tensors, settings: tuple[Any, ...]) -> Tensors:
        if _is_special(tensors):
            return self.function(*tensors, *settings)
        key = *settings, *_facts(tensors)
        found = self._known.get(key)
        if isinstance(found, _Recipe):
            return found(tensors)
        if found is _SEEN:
            return self._record(key, tensors, settings)
        if found is None:
            self._known[key] = _SEEN
        return self.function(*tensors, *settings)

    def _record(self, key: Any, tensors: Tensors, settings: tuple[Any, ...]) -> Tensors:
        self._known[key] = _NEVER  # if it fails: what is recorded holds all its tensors at once
        with _Recorder(tensors) as recorder:
            launches, uses = LISTENER.set(recorder.launched), host.USED.set(recorder.used_numbers)
            try:
                results = self.function(*tensors, *settings)
            finally:
                LISTENER.reset(launches)
                host.USED.reset(uses)
        recipe = recorder.recipe(results)
        if not recorder.refused:
            self._known[key] = recipe
        return results


def _is_special(tensors: Tensors) -> bool:
    """Whether something else than plain calls is going on: tuning, compiling, tracing, a CUDA graph, a recording."""
    if COMPILING_FOR.get() is not None or TRIAL.get() is not None or LISTENER.get() is not None:
        return True
    return capturing(tensors[0].device) or any(
        type(x) not in (Tensor, torch.nn.Parameter) for x in tensors if x is not None
    )


def _facts(tensors: Tensors) -> list[Any]:
    """What tells kinds of calls apart: of each tensor its layout, alignment, and where it shares another's storage."""
    facts: list[Any] = []
    seen: dict[int, int] = {}
    first: dict[int, tuple[int, int]] = {}
    for at, x in enumerate(tensors):
        same = at if x is None else seen.setdefault(id(x), at)
        if x is None or same != at:
            facts += (None, same)
            continue
        owner, offset = first.setdefault(_storage(x), (at, x.storage_offset()))
        facts += (
            x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % ALIGNED, owner, x.storage_offset() - offset
        )  # fmt: skip
    return facts
