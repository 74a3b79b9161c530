"""Tensors that follow from sizes alone, made once for all calls of a kind; never freed under a captured graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

from nsa.bounded import Bounded

MOST = 16
"""Kinds that one function remembers."""

Function = TypeVar("Function", bound=Callable[..., Any])


def capturing(device: torch.device) -> bool:
    """Whether what is launched now goes into a CUDA graph instead of running."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def constant(function: Function) -> Function:
    """Remember the results of a function of sizes and, last, a device.

    What a graph captures it reads at the same address for as long as it lives: that is held for good. What is made
    during a capture belongs to the graph, and holds nothing before it runs: that is not remembered.
    """
    known: Bounded[tuple[Any, ...], Any] = Bounded(MOST)
    captured: dict[tuple[Any, ...], Any] = {}

    @wraps(function)
    def found(*sizes: Any) -> Any:
        made = captured.get(sizes)
        made = known.get(sizes) if made is None else made
        if capturing(sizes[-1]):
            if made is not None:
                captured[sizes] = made
        elif made is None:
            made = known[sizes] = function(*sizes)
        return function(*sizes) if made is None else made

    return found  # type: ignore[return-value]
