"""Which kernels of Triton's a process launched, on which device, Gluon's and interpreted ones included.

Launches that a CUDA graph repeats or Inductor's static launcher makes pass Triton by: `cuda` sees their work.
"""

from __future__ import annotations

import sys

from ..hooks import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

    from ..stage import Notes

INTERPRETED = "cpu:interpreted"
_HOOK = "launch_enter_hook"
_NAME_LENGTH = 200


class Launches:
    """Counts since they were last noted, by device and kernel; noted as `{"ran": {device: {kernel: n}}, "test": ID}`.

    A kernel's first launch on a device is noted at once, for the process may be killed; `test` tells whose it is.
    """

    def __init__(self, notes: Notes, test: Callable[[], str | None]) -> None:
        self._notes = notes
        self._test = test
        self._counts: dict[str, dict[str, int]] = {}
        self.total = 0
        self._known: set[tuple[str, str]] = set()
        self._backends: dict[int, str] = {}
        self._of_nothing: Any = None  # what Triton made of the last grid, where that was one of nothing
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "triton": self._watch_triton,
            "triton.runtime.interpreter": self._watch_interpreter,
        }

    def note(self, test: str | None = None) -> None:
        """Write down what was counted, as the work of `test`, or of the one that is now."""
        if self._counts:
            counts, self._counts = self._counts, {}
            self._notes.add(ran=counts, test=test or self._test())

    def forget(self) -> None:
        """In a forked child, what its parent had counted."""
        self._counts, self._known = {}, set()

    def _count(self, device: str, kernel: str) -> None:
        self.total += 1
        if (device, kernel) not in self._known:
            self._known.add((device, kernel))
            self._notes.add(ran={device: {kernel: 1}}, test=self._test())
            return
        of_device = self._counts.setdefault(device, {})
        of_device[kernel] = of_device.get(kernel, 0) + 1

    def _watch_triton(self, triton: Any) -> None:
        """By the chain of hooks, which Triton has from 3.5 on; before, by what each launch prepares for the one hook.

        There the hook itself is left alone: who sets it later would drop ours, and Proton does not begin where one is.
        A grid of nothing is prepared, and told to the hooks, as any other; the driver is given none of it.
        """
        knobs = getattr(getattr(triton, "knobs", None), "runtime", None)
        compiled = triton.compiler.CompiledKernel  # without this before 3.0: nothing is watched then
        if hasattr(getattr(knobs, _HOOK, None), "add"):
            setattr(type(knobs), _HOOK, _Chained(self._on_hook, getattr(knobs, _HOOK)))
            watch(compiled, "launch_metadata", after=self._prepared)
            return
        watch(compiled, "launch_metadata", before=self._prepares)

    def _prepares(self, frame: object, kernel: Any, grid: Any, *_: Any, **__: Any) -> None:
        if 0 not in grid:
            self._launched(getattr(kernel, "name", None))

    def _prepared(self, frame: object, metadata: Any, kernel: object, grid: Any, *_: Any, **__: Any) -> None:
        self._of_nothing = metadata if 0 in grid else None

    def _on_hook(self, metadata: Any) -> None:
        if metadata is not None and metadata is self._of_nothing:
            return
        # Not its get(), which would have the kernel's author compute what only a profiler asks for.
        data = getattr(metadata, "data", None)
        self._launched(data.get("name") if isinstance(data, dict) else None)

    def _launched(self, kernel: object) -> None:
        try:
            driver = sys.modules["triton"].runtime.driver.active
            backend = self._backends.get(id(driver))
            if backend is None:
                backend = self._backends[id(driver)] = str(driver.get_current_target().backend)
            self._count(f"{backend}:{driver.get_current_device()}", str(kernel or "?")[:_NAME_LENGTH])
        except Exception:  # what cannot be counted must not fail the launch
            return

    def _watch_interpreter(self, interpreter: Any) -> None:
        watch(interpreter.GridExecutor, "__call__", after=self._interpreted)

    def _interpreted(self, frame: object, result: object, grid: Any, *_: Any, **__: Any) -> None:
        self._count(INTERPRETED, str(grid.fn.__name__)[:_NAME_LENGTH])


class _Chained:
    """The attribute of Triton's knobs that holds the chain of hooks: whatever is set there, `ours` is called too."""

    def __init__(self, ours: Callable[[Any], None], default: Any) -> None:
        self._ours = ours
        self._default = default

    def __get__(self, knobs: Any, owner: type | None = None) -> Any:
        theirs = self._default if knobs is None else vars(knobs).get(_HOOK, self._default)
        calls = getattr(theirs, "calls", None)
        if not isinstance(calls, list):  # a function, or None, in place of the chain
            theirs, function = type(self._default)(), theirs
            calls = theirs.calls
            calls += [function] if callable(function) else []
        if self._ours not in calls:
            calls.insert(0, self._ours)
        return theirs

    def __set__(self, knobs: Any, value: Any) -> None:
        vars(knobs)[_HOOK] = value

    def __delete__(self, knobs: Any) -> None:
        vars(knobs).pop(_HOOK, None)
