"""How operations behave in a compiled model."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
"""Whether `torch.compile` traces this call. torch 2.2 has it in another place only."""


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Leave `function` out of `torch.compile`: the graph ends before a call of it and another one begins after it.

    What an operation decides on the host (checks, routes, launches that are remembered) is not for a compiler to trace,
    and its kernels are compiled already.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_compiling():
            return _uncompiled(function, *args, **kwargs)
        return function(*args, **kwargs)

    return called


def _uncompiled(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Not done where the function is defined: that would import the compiler, a second, for everyone."""
    return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-any-return]
