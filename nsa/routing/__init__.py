"""Routing: which backend runs an operation, why, and the record of what really ran."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from nsa import flags
from nsa.routing import registry
from nsa.routing.explain import explain_routing
from nsa.routing.policy import PARTS, WHOLE, BackendChoice, decide, per_operation
from nsa.routing.record import Judge, Recording, observed, observing, record, recording
from nsa.routing.request import Decision, How, Request, Route

__all__ = [
    "BackendChoice", "Decision", "How", "Judge", "Recording", "Request", "Route", "RoutingError", "carry_out", "decide",
    "decided", "explain_routing", "observing", "per_operation", "record",
]  # fmt: skip

Result = TypeVar("Result")


class RoutingError(RuntimeError):
    """A backend that an argument names cannot run; or a fallback while `strict` is on."""


def decided(request: Request, backend: BackendChoice = None, strict: bool = False) -> Decision | None:
    """What `decide` says by the flags in force, if it may be carried out; None: nothing considered has the operation.

    Args:
        request: the facts of the call.
        backend: the caller's choice, before any flag; where it cannot run, that is a RoutingError.
        strict: a fallback is a RoutingError, and so is what a profile keeps off (NSA_STRICT: in every call).
    """
    decision = decide(request, backend if isinstance(backend, str) else per_operation(backend), flags.current())
    if decision is None:
        return None
    if decision.refused:
        why = dict(decision.declined)[str(decision.requested)]
        raise RoutingError(
            f"{request.operation}: backend={decision.requested!r} cannot run this call: {why}; without backend= it "
            f"would run on {decision.backend}"
        )
    if (decision.fallback or decision.overruled) and (strict or flags.current().strict):
        raise RoutingError(f"{request.operation} would run on {decision.backend}: {decision.reason}")
    return decision


def carry_out(
    decision: Decision, request: Request, call: Callable[[ModuleType], Result], judge: Judge | None = None
) -> Result:
    """Run `call` with the module of the backend that was decided for, and record it."""
    module = registry.load(decision.backend)
    if recording() or observing(flags.current()):
        named = PARTS if request.operation == WHOLE else (request.operation,)
        return observed(decision, request.device, named, lambda: call(module), judge)
    return call(module)
