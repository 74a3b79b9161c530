"""Launches that repeat cost the host little.

Triton finds the compiled kernel of a launch by every argument's type, alignment and options, which takes longer than
many of these kernels run at 8k tokens. A `launched` kernel remembers what Triton answered under a key that tells
launches apart at least as finely, and goes straight to the compiled kernel the next time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import triton
from torch import Tensor
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from nsa.bounded import Bounded
from nsa.kernels.tuning.lookup import COMPILING_FOR

REMEMBERS = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 6)
"""Whether this Triton launches a compiled kernel with all of its arguments, compile-time ones included."""

MOST = 1024
"""Launches of one kernel that are remembered: sizes may differ from call to call."""

ALIGNED = 16
"""Bytes: what Triton asks of an address is whether it is a multiple of this."""


LISTENER: ContextVar[Callable[..., None] | None] = ContextVar("nsa_kernels_listener", default=None)
"""Takes the launches of a recording instead: called with the kernel, the grid and the arguments."""


class Launched:
    """A kernel that the host launches: `kernel[grid](*arguments, **constants)`.

    Arguments come in the kernel's order; what is known at compile time comes by name, and so do options (num_warps).
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._remembers = REMEMBERS and isinstance(kernel, JITFunction)  # not where it is interpreted
        self._remembered: Bounded[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = Bounded(MOST)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        listener = LISTENER.get()
        if listener is not None:
            return partial(listener, self, grid)
        if self._remembers and COMPILING_FOR.get() is None:
            return partial(self._launch, (*grid, 1, 1)[:3])
        return self.kernel[grid]

    def bound(
        self, grid: tuple[int, ...], arguments: tuple[Any, ...], constants: dict[str, Any]
    ) -> tuple[Callable[..., Any], list[Any]]:
        """What repeats a launch that was done before, and what it is called with: first `arguments`, with addresses for
        tensors where the compiled kernel is called, then what was known at compile time.
        """
        if self._remembers:
            kinds, values = _described(arguments)
            found = self._remembered.get(_key(kinds, constants))
            if found is not None:
                compiled, rest = found
                return compiled[(*grid, 1, 1)[:3]], [*values, *rest]
        return partial(self.kernel[grid], **constants), list(arguments)

    def _launch(self, grid: tuple[int, int, int], *arguments: Any, **constants: Any) -> None:
        kinds, values = _described(arguments)
        key = _key(kinds, constants)
        found = self._remembered.get(key)
        if found is not None:
            compiled, rest = found
            compiled[grid](*values, *rest)
            return
        compiled = self.kernel[grid](*arguments, **constants)
        if compiled is None:  # a hook of Triton's kept it from being launched
            return
        names = self.kernel.arg_names[len(arguments) :]
        self._remembered[key] = compiled, tuple(constants[name] for name in names)


def _key(kinds: list[Any], constants: dict[str, Any]) -> tuple[Any, ...]:
    return driver.active.get_current_device(), *kinds, *constants, *constants.values()


def launched(kernel: Any) -> Any:
    """Decorate a kernel of `triton.jit` that the host launches."""
    return Launched(kernel)


def _described(arguments: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """What tells arguments apart for the compiler, numbers by their value; and the arguments, addresses for tensors."""
    kinds: list[Any] = []
    values: list[Any] = []
    bits = 0
    for x in arguments:
        kind = type(x)
        if kind is int or x is None:
            kinds.append(x)
            values.append(x)
        elif isinstance(x, float):
            kinds += (float, x)
            values.append(x)
        elif isinstance(x, Tensor):
            address = x.data_ptr()
            bits |= address
            kinds.append(x.dtype)
            values.append(address)
        else:  # a tensor descriptor
            kinds += (x.base.dtype, *x.block_shape)
            values.append(x)
    if bits % ALIGNED:
        kinds += [x.data_ptr() % ALIGNED for x in arguments if isinstance(x, Tensor)]
    return kinds, values
