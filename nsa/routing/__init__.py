"""Routing: which backend runs an operation, why, and the record of what really ran."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import TypeVar

import torch

from nsa import flags
from nsa.device import device_name
from nsa.routing import debug, registry
from nsa.routing.explain import explain_routing
from nsa.routing.policy import PARTS, WHOLE, BackendChoice, below_crossover, decide, per_operation
from nsa.routing.record import Recording, add, record, recording
from nsa.routing.request import Decision, Request, Route

__all__ = [
    "BackendChoice",
    "Decision",
    "Recording",
    "Request",
    "Route",
    "RoutingError",
    "decide",
    "explain_routing",
    "module",
    "per_operation",
    "prefers_dense",
    "record",
    "run",
    "run_whole",
]

Result = TypeVar("Result")


class RoutingError(RuntimeError):
    """A backend that an argument names cannot run; or a fallback while `strict` is on."""


def run(
    request: Request,
    call: Callable[[ModuleType], Result],
    *,
    backend: BackendChoice = None,
    strict: bool = False,
    judge: debug.Judge | None = None,
) -> Result:
    """Run `call` with the module of the backend that the request is routed to, and record it.

    Args:
        request: the facts of the call.
        call: calls the operation's function in a backend's module.
        backend: the caller's choice, before any flag; where it cannot run, that is a RoutingError.
        strict: a fallback is a RoutingError, and so is what a profile keeps off (NSA_STRICT: in every call).
        judge: the oracle on some query rows, used under NSA_DEBUG_COMPARE=1 only.
    """
    decision = _decision(request, backend)
    if decision is None:
        raise RoutingError(f"no backend implements {request.operation}")
    return _execute(request, decision, call, strict, judge)


def run_whole(
    request: Request,
    call: Callable[[ModuleType], Result],
    *,
    backend: BackendChoice = None,
    strict: bool = False,
    judge: debug.Judge | None = None,
) -> Result | None:
    """Run the fused operation where a backend has it and may; None leaves it to the separate operations."""
    decision = _decision(request, backend)
    return None if decision is None else _execute(request, decision, call, strict, judge)


def module(request: Request, backend: BackendChoice) -> ModuleType | None:
    """The module that `run` would call, without a record of it."""
    decision = _decision(request, backend)
    return None if decision is None else registry.load(decision.backend)


def _decision(request: Request, choice: BackendChoice) -> Decision | None:
    if choice is None or isinstance(choice, str):
        return decided(request, choice, flags.current())
    items = choice if isinstance(choice, Mapping) else per_operation(choice)  # which refuses it
    return decided(request, tuple(items.items()), flags.current())


@lru_cache(maxsize=1024)
def decided(request: Request, choice: str | tuple[tuple[str, str], ...] | None, active: flags.Flags) -> Decision | None:
    """`decide`, remembered: a model asks the same at every layer. A mapping is given by its items."""
    return decide(request, dict(choice) if isinstance(choice, tuple) else choice, active)


def prefers_dense(request: Request) -> bool:
    """Whether dense attention is switched on (NSA_DENSE=1) and this request is below the crossover."""
    return below_crossover(request, flags.current())


def _execute(
    request: Request,
    decision: Decision,
    call: Callable[[ModuleType], Result],
    strict: bool,
    judge: debug.Judge | None,
) -> Result:
    active = flags.current()
    if decision.refused:
        why = dict(decision.declined)[str(decision.requested)]
        raise RoutingError(
            f"{request.operation}: backend={decision.requested!r} cannot run this call: {why}; without backend= it "
            f"would run on {decision.backend}"
        )
    if (decision.fallback or decision.overruled) and (strict or active.strict):
        raise RoutingError(f"{request.operation} would run on {decision.backend}: {decision.reason}")
    start = _now(request.device) if active.debug_timing else 0.0
    result = call(registry.load(decision.backend))
    seconds = _now(request.device) - start if active.debug_timing else None
    error = debug.mean_abs_error(result, judge) if active.debug_compare and judge else None
    if recording() or debug.wanted(active):
        _record(request, decision, seconds, error)
    return result


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _record(request: Request, decision: Decision, seconds: float | None, error: float | None) -> None:
    route = Route(
        request.operation,
        decision.backend,
        device_name(request.device),
        registry.interpreted(decision.backend),
        decision.requested,
        decision.fallback,
        decision.reason,
        seconds,
        error,
        decision.gradient or None,
    )
    for operation in PARTS if request.operation == WHOLE else (request.operation,):
        add(replace(route, operation=operation))
    debug.log(route, flags.current())
