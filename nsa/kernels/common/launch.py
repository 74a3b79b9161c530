"""How the host launches kernels, and where that can be listened to."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import triton
from triton.runtime.jit import JITFunction

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
"""Of Triton: (3, 6)."""

REPEATS = VERSION >= (3, 6)
"""Whether this Triton launches a compiled kernel with all of its arguments, compile-time ones included."""

LISTENER: ContextVar[Callable[..., None] | None] = ContextVar("nsa_kernels_listener", default=None)
"""Takes the launches of a recording instead: called with the kernel, the grid and the arguments."""


class Launched:
    """A kernel that the host launches: `kernel[grid](*arguments, **constants)`.

    Arguments come in the kernel's order; what is known at compile time comes by name, and so do options (num_warps).
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.repeats = REPEATS and isinstance(kernel, JITFunction)  # not where it is interpreted

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        listener = LISTENER.get()
        return self.kernel[grid] if listener is None else partial(listener, self, grid)  # type: ignore[no-any-return]


def launched(kernel: Any) -> Any:
    """Decorate a kernel of `triton.jit` that the host launches."""
    return Launched(kernel)
