"""How the host launches kernels, and where that can be listened to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import triton
from torch import Tensor
from triton.runtime.jit import JITFunction

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
"""Of Triton: (3, 6)."""

REPEATS = VERSION >= (3, 6)
"""Whether this Triton launches a compiled kernel with all of its arguments, compile-time ones included."""

ALIGNMENT = 16
"""Bytes, and elements of strides, that Triton asks for."""

LISTENER: ContextVar[Callable[..., None] | None] = ContextVar("nsa_kernels_listener", default=None)
"""Takes the launches of a recording instead: called with the kernel, the grid and the arguments."""


class Launched:
    """A kernel that the host launches: `kernel[grid](*arguments, **constants)`.

    Arguments come in the kernel's order; what is known at compile time comes by name, and so do options (num_warps).
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._hashed = not isinstance(kernel, JITFunction)
        self.repeats = REPEATS and isinstance(kernel, JITFunction)  # not where it is interpreted

    def of(self, arguments: Sequence[Any]) -> Any:
        """The kernel of `triton.jit` that takes these arguments."""
        if not self._hashed:
            hash_callees_first(self.kernel)
            self._hashed = True
        return self._form(arguments)

    def _form(self, arguments: Sequence[Any]) -> Any:
        return self.kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        listener = LISTENER.get()
        return partial(listener or _launch, self, grid)


class LaunchedInTwoForms(Launched):
    """One whose tensors are all known to be aligned or, where one is not, none.

    Triton compiles a kernel for each mixture of addresses and strides that are multiples of 16 and such that are not:
    with three tensors of users' making these are dozens, a second each. So are two.
    """

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel)
        self._aligned: list[int] = []
        """The arguments of which Triton asks."""
        if isinstance(kernel, JITFunction):
            given = [x for x in kernel.params if not x.is_constexpr]
            self._aligned = [x.num for x in given if not x.do_not_specialize]
            self._anywhere = JITFunction(kernel.fn, do_not_specialize=[x.name for x in given])

    def _form(self, arguments: Sequence[Any]) -> Any:
        return self.kernel if all(_is_aligned(arguments[at]) for at in self._aligned) else self._anywhere


def _is_aligned(x: Any) -> bool:
    """Of what is neither a tensor nor a stride nothing is asked."""
    number = x.data_ptr() if isinstance(x, Tensor) else x if isinstance(x, int) else 0
    return number % ALIGNMENT == 0


def hash_callees_first(function: Any) -> None:
    """Let Triton hash the functions that one calls before itself, whose key on disk they are part of.

    `cache_key` takes up a callee's global constants before it hashes the callee (seen in 3.6 and 3.7): without this, a
    key depends on what was launched earlier, and a process compiles again what another has compiled.
    """
    for name in function.fn.__code__.co_names:
        called = function.fn.__globals__.get(name)
        if isinstance(called, JITFunction):
            hash_callees_first(called)
    _ = function.cache_key


def _launch(kernel: Launched, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> Any:
    return kernel.of(arguments)[grid](*arguments, **constants)


launched: Callable[[Any], Any] = Launched
"""Decorates a kernel of `triton.jit` that the host launches."""

launched_in_two_forms: Callable[[Any], Any] = LaunchedInTwoForms
"""As `launched`, compiled twice at most for the layouts of its tensors."""
