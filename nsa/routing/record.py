"""What really ran: recorders see every operation executed inside their block, in this thread or task.

NSA_DEBUG_*: one log line for a route, with its time and its error against the oracle.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from nsa import flags
from nsa.contexts import held
from nsa.device import device_name
from nsa.flags import Flags
from nsa.routing import registry
from nsa.routing.request import Decision, Route

Result = TypeVar("Result")
Judge = Callable[[list[int]], Tensor]
"""The oracle's output [B,R,...] for R query rows."""

SAMPLED_ROWS = 16
logger = logging.getLogger("nsa")
_lines: Counter[tuple[str, str]] = Counter()
_active: ContextVar[tuple[Recording, ...]] = ContextVar("nsa_recordings", default=())


class Recording(list[Route]):
    """The routes taken, in order of execution."""

    def of(self, operation: str) -> list[Route]:
        """The routes of one operation."""
        return [route for route in self if route.operation == operation]

    def backends(self, operation: str) -> set[str]:
        """The distinct routes of one operation as text: `triton@cuda:sm_90`."""
        return {str(route) for route in self.of(operation)}


@contextmanager
def record() -> Iterator[Recording]:
    """Collect the routes of the operations executed in the block. Recorders nest; each sees everything."""
    recording = Recording()
    with held(_active, (*_active.get(), recording)):
        yield recording


def recording() -> bool:
    """Whether any recorder is active."""
    return bool(_active.get())


def paused() -> AbstractContextManager[object]:
    """No recorder sees what runs in the block (a judge's own work)."""
    return held(_active, ())


def observing(active: Flags) -> bool:
    """Whether any NSA_DEBUG_* flag asks for a line."""
    return active.debug_log or active.debug_timing or active.debug_compare


def observed(
    decision: Decision, device: torch.device, operations: Sequence[str], call: Callable[[], Result], judge: Judge | None
) -> Result:
    """Call, and tell every recorder and the log which backend ran these operations."""
    active = flags.current()
    start = _now(device) if active.debug_timing else 0.0
    result = call()
    seconds = _now(device) - start if active.debug_timing else None
    error = _mean_abs_error(result, judge) if active.debug_compare and judge else None
    interpreted = registry.interpreted(decision.backend)
    route = Route(
        **vars(decision), device=device_name(device), interpreted=interpreted, seconds=seconds, mean_abs_error=error
    )
    for operation in operations:
        for recording in _active.get():
            recording.append(replace(route, operation=operation))
    if observing(active):
        _log(route, active.log_limit)
    return result


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _log(route: Route, most: int) -> None:
    """A JSON line for the route on the logger `nsa`, at most NSA_LOG_LIMIT for one operation and backend."""
    tag = (route.operation, str(route))
    _lines[tag] += 1
    if _lines[tag] <= most:
        logger.warning(json.dumps({key: value for key, value in asdict(route).items() if value not in (None, "", ())}))


@torch.no_grad()
def _mean_abs_error(result: Any, judge: Judge) -> float:
    """Mean absolute difference to the oracle on rows spread over the queries, 0 where there are none."""
    output: Tensor = result[0] if isinstance(result, (tuple, list)) else result
    tokens = output.shape[1]
    if tokens == 0:
        return 0.0
    rows = sorted({index * (tokens - 1) // (SAMPLED_ROWS - 1) for index in range(SAMPLED_ROWS)})
    with paused():
        expected = judge(rows)
    return float((output[:, rows].to(expected.dtype) - expected).abs().mean())
