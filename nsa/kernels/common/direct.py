"""Launches of compiled kernels by the compiled function that Triton's launcher calls at last.

Before each launch Triton asks for device, stream and hooks, and makes a tensor map of each descriptor: 10 of the 14 us
that a kernel with two descriptors took an H200's host. Of calls of one kind only addresses change. So a recording
(`nsa.kernels.recorded`) asks once for all its launches, keeps tensor maps by address, and calls that function itself.
What it takes is another thing in each version of Triton, and is found by calling the launcher with one that only looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CellType, FunctionType, SimpleNamespace
from typing import Any

import triton
from triton.runtime.driver import driver

from nsa.kernels.common.tma import of_kind

MOST_MAPS = 256
"""Tensor maps that are kept of one descriptor."""


class Text(str):
    """A value as a program says it."""


STREAM, ENTER, LEAVE = Text("stream"), Text("enter"), Text("leave")
"""What a program calls the results of `now`."""


@dataclass(frozen=True)
class Described:
    """A descriptor of Triton's, of a tensor whose address a program says."""

    descriptor: Any
    address: Text


def now(device: int) -> tuple[int, Any, Any]:
    """The current stream of the device, and what listens before and after launches, if anything does."""
    runtime = triton.knobs.runtime
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    stream = driver.active.get_current_stream(device)
    return stream, enter if getattr(enter, "calls", True) else None, leave if getattr(leave, "calls", True) else None


def launch(
    kernel: Any, grid: tuple[int, int, int], values: Sequence[Any], name: Callable[[Any], str], stream: Text = STREAM
) -> str | None:
    """A launch in a program; None where the kernel needs more at each one, or this Triton launches otherwise.

    Args:
        kernel: compiled, and launched before.
        grid: of the launch.
        values: all arguments, compile-time ones too, in order; a Text stands for an address.
        name: gives what the program calls an object.
        stream: what the program calls the stream.
    """
    run, seen = copy(kernel.run), []
    sizes = (getattr(run, f"{kind}_scratch_size", 0) for kind in ("global", "profile"))
    if any(sizes) or kernel.src.fn.launch_metadata is not None or not hasattr(run, "launch"):
        return None

    def expand(x: Described, how: Any, *more: Any) -> list[Any]:
        _, *sizes = original(x.descriptor, how, *more)
        alike = partial(of_kind, type(x.descriptor), {**vars(x.descriptor), "base": None})  # which holds no tensor

        @lru_cache(MOST_MAPS)
        def tensor_map(address: int) -> Any:
            standing_in = SimpleNamespace(data_ptr=lambda: address)  # of a tensor nothing but this matters
            return original(alike(standing_in), how, *more)[0]

        return [x.address if how is None else Text(f"{name(tensor_map)}({x.address})"), *sizes]

    try:
        run.launch, launcher, original = _with(run.launch, lambda *given: seen.append(given), expand)
        metadata = Text(f"{ENTER} and {name(partial(kernel.launch_metadata, grid))}({stream})")
        run(*grid, stream, kernel.function, kernel.packed_metadata, metadata, ENTER, LEAVE, *values)
        (given,) = seen
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
    return f"{name(launcher)}({', '.join(_said(x, name) for x in given)})"


def _with(launch: Any, launcher: Any, expand: Any) -> tuple[Any, Any, Any]:
    """A function like Triton's `launch` that calls these at last, and for each descriptor; and what it calls."""
    if not isinstance(launch, FunctionType):  # without descriptors it is the compiled function
        return launcher, launch, None
    others = {"launcher": launcher, "make_tensordesc_arg": expand}
    free = dict(zip(launch.__code__.co_freevars, launch.__closure__ or (), strict=True))
    held = {**launch.__globals__, **{x: cell.cell_contents for x, cell in free.items()}}
    closure = tuple(CellType(others[x]) if x in others else cell for x, cell in free.items())
    changed = FunctionType(launch.__code__, {**launch.__globals__, **others}, closure=closure)
    return changed, held["launcher"], held["make_tensordesc_arg"]


def _said(x: Any, name: Callable[[Any], str]) -> str:
    if isinstance(x, Text):
        return x
    if isinstance(x, (tuple, list)) and any(isinstance(y, Text) for y in x):
        return f"({''.join(_said(y, name) + ', ' for y in x)})"
    return repr(x) if x is None or type(x) in (int, bool, str) else name(x)
