"""Plans: what calls of one kind need, made at the first of them and passed on.

Calls are of one kind where their tensors have one layout (`layout`) and all else is equal: settings, flags, whether
gradients are wanted. One key says that, looked up once for each call. The plan that is found holds that the arguments
go together, which backend computes and why, the tensors that follow from sizes alone (`constant`), and the recorded
launches of forward and backward (`nsa.kernels.recorded`); the gradient finds it in autograd's context.

`PLANS` keeps so many plans, and so many bytes of their tensors. A plan that a CUDA graph was captured with is kept for
good, because the graph reads its tensors at their addresses for as long as it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from threading import Lock, RLock
from typing import Any, TypeVar

import torch
from torch import Tensor

from nsa.flags import Flags
from nsa.routing import Decision, Request

ALIGNED = 16
"""Bytes: what Triton asks of an address is whether it is a multiple of this."""

MOST, MOST_BYTES = 256, 256 << 20
"""Plans that are kept, and bytes of the tensors that they hold together."""

Key = tuple[Any, ...]
Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


def layout(x: Tensor) -> Key:
    """What tells the launches for one tensor from those for another."""
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % ALIGNED


def sharing(tensors: Iterable[Tensor | None]) -> Key:
    """Of each tensor the place of the first that is the same one: recorded launches read one where another was."""
    places: dict[int, int] = {}
    return tuple(places.setdefault(id(x), at) for at, x in enumerate(tensors))


def capturing(device: torch.device) -> bool:
    """Whether what is launched now goes into a CUDA graph instead of running."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


@dataclass(eq=False)
class Plan:
    """What the calls of one kind need.

    Attributes:
        key: tells the kind.
        request, decision: its facts, and the backend that computes; no decision: operation by operation.
        flags: in force when it was made.
        scale: of the logits.
        tensors: those that follow from sizes alone, by what made them.
        nbytes: of these.
        recorded: of each direction and kind of incoming gradient what repeats it, or how far that is known.
        owned: whoever owns it lets go of it in time, also where a graph was captured with it.
        used: when it was looked up last, counted in calls.
        ran: whether a step of decode was carried out by it, whose kernels then are compiled.
    """

    key: Key
    request: Request
    decision: Decision | None
    flags: Flags
    scale: float = 0.0
    owned: bool = False
    tensors: dict[Key, Any] = field(default_factory=dict)
    nbytes: int = 0
    recorded: dict[Key, Any] = field(default_factory=dict)
    used: int = 0
    ran: bool = False
    _streams: set[int] = field(default_factory=set)
    _made: torch.cuda.Event | None = None
    _holding: RLock = field(default_factory=RLock)

    def __deepcopy__(self, copied: object) -> Plan:
        """A copy of what owns a plan owns it, too: recorded launches name its tensors by their addresses."""
        return self

    @property
    def device(self) -> torch.device:
        return self.request.device

    def within(self, call: Callable[[], Result]) -> Result:
        """Call what belongs to this plan, on its device, whichever is current."""
        token = ACTIVE.set(self)
        try:
            if self.device.type == "cuda" and self.device.index != torch.cuda.current_device():
                with torch.cuda.device(self.device):
                    return call()
            return call()
        finally:
            ACTIVE.reset(token)

    def enter(self) -> bool:
        """Make the plan's tensors safe to read on the current stream; whether a CUDA graph is being captured.

        Before a capture begins the device is done with all else: nothing is to be waited for in one.
        """
        captures = capturing(self.device)
        if captures:
            if not self.owned:
                PLANS.pinned.add(self)
        elif self._made is not None and torch._C._cuda_getCurrentRawStream(self.device.index) not in self._streams:
            with self._holding:
                current = torch.cuda.current_stream(self.device)
                current.wait_event(self._made)
                for made in list(self.tensors.values()):
                    for x in _tensors(made):
                        x.record_stream(current)  # freed only when that stream is done with it
                self._streams.add(current.cuda_stream)
        return captures

    def hold(self, name: Key, made: Any) -> None:
        """Keep what was just made on the current stream, unless another thread did."""
        with self._holding:
            if name in self.tensors:
                return
            self.enter()  # what is waited for from now on comes after all that is held
            if self.device.type == "cuda":
                current = torch.cuda.current_stream(self.device)
                self._made, self._streams = current.record_event(), {current.cuda_stream}
            self.tensors[name] = made  # at last: who finds it waits for it
            self.nbytes += sum(x.untyped_storage().nbytes() for x in _tensors(made))
        PLANS.trim()


ACTIVE: ContextVar[Plan | None] = ContextVar("nsa_plan", default=None)
"""The plan that what runs now belongs to."""


def constant(function: Function) -> Function:
    """Have the plan hold the results of a function of sizes and, last, a device: tensors, or dataclasses of tensors.

    What is made during a capture belongs to the graph, and holds nothing before it runs: that is not kept. What is kept
    is made on a thread of its own: where a compiled model prepares CUDA graphs, all that the caller's thread allocates
    is from their memory, which is given away again. Nor is it then a tensor of the caller's inference mode.
    """

    @wraps(function)
    def found(*sizes: Any) -> Any:
        plan, name = ACTIVE.get(), (function, *sizes)
        if plan is None:
            return function(*sizes)
        if name not in plan.tensors:
            if capturing(sizes[-1]):
                return function(*sizes)
            with ThreadPoolExecutor(1) as thread:  # in this one's context
                thread.submit(copy_context().run, plan.within, lambda: plan.hold(name, function(*sizes))).result()
        plan.enter()  # it may have been made a moment ago, on another stream
        return plan.tensors[name]

    return found  # type: ignore[return-value]


def _tensors(made: Any) -> list[Tensor]:
    return [made] if isinstance(made, Tensor) else [x for x in vars(made).values() if isinstance(x, Tensor)]


class Store:
    """The plans last used, and those that captured graphs need, `pinned`: these are kept, whoever lets go of them."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.pinned: set[Plan] = set()
        self._plans: dict[Key, Plan] = {}
        self._clock = count()
        self._changing = Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[Plan]:
        return iter(list(self._plans.values()))

    def get(self, key: Key) -> Plan | None:
        plan = self._plans.get(key)
        if plan is not None:
            plan.used = next(self._clock)
        return plan

    def add(self, plan: Plan) -> None:
        plan.used = next(self._clock)
        self._plans[plan.key] = plan
        self.trim()

    def trim(self) -> None:
        """Let go of the plans that were not used for longest, where there are too many or they hold too much."""
        with self._changing:
            oldest_last = sorted(self, key=lambda plan: plan.used, reverse=True)
            total = sum(plan.nbytes for plan in oldest_last)
            while len(oldest_last) > self.most or (total > self.most_bytes and len(oldest_last) > 1):
                plan = oldest_last.pop()
                total -= plan.nbytes
                self._plans.pop(plan.key, None)

    def clear(self) -> None:
        """Forget all but what graphs need."""
        self._plans.clear()


PLANS = Store()
