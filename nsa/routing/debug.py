"""NSA_DEBUG_*: one log line for a route, and its error against the oracle."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from nsa.flags import Flags
from nsa.routing.record import paused
from nsa.routing.request import Route

Judge = Callable[[list[int]], Tensor]
"""The oracle's output [B,R,...] for R query rows."""

SAMPLED_ROWS = 16
logger = logging.getLogger("nsa")
_lines: Counter[tuple[str, str]] = Counter()


def wanted(flags: Flags) -> bool:
    """Whether any NSA_DEBUG_* flag asks for a line."""
    return flags.debug_log or flags.debug_timing or flags.debug_compare


def log(route: Route, flags: Flags) -> None:
    """A JSON line for the route on the logger `nsa`, at most NSA_LOG_LIMIT for one operation and backend."""
    if not wanted(flags):
        return
    tag = (route.operation, str(route))
    _lines[tag] += 1
    if _lines[tag] <= flags.log_limit:
        logger.warning(json.dumps({key: value for key, value in asdict(route).items() if value is not None}))


@torch.no_grad()
def mean_abs_error(result: Any, judge: Judge) -> float:
    """Mean absolute difference to the oracle on rows spread over the queries, 0 where there are none."""
    output: Tensor = result[0] if isinstance(result, tuple) else result
    tokens = output.shape[1]
    if tokens == 0:
        return 0.0
    rows = sorted({index * (tokens - 1) // (SAMPLED_ROWS - 1) for index in range(SAMPLED_ROWS)})
    with paused():
        expected = judge(rows)
    return float((output[:, rows].to(expected.dtype) - expected).abs().mean())
