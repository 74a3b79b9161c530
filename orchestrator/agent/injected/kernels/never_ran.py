"""Kernels that never ran, because something else was there in their place: what the tree's code did after it had caught
what their launches raised, what a test had its modules hold instead, or the way that a function chose which tests call
(a variable, a table, a default). Told as doubts: it may be meant, for what a kernel cannot do.

Only where Triton's interpreter runs kernels: what a compiled one's launch raises is seen at no cheap place, and on a
GPU it is asked what ran there.
"""

from __future__ import annotations

import os
import sys

from ..frames import outside
from ..hooks import watch
from .behind import Behind, is_kernel, kernel_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from types import FrameType, ModuleType
    from typing import Any, Callable, Iterable, Sequence

    from ..checks.records import Checks


class NeverRan:
    """Of this process, by the kernels' names."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._why: dict[str, str] = {}
        self._modules = 0
        self._kernels: list[tuple[str, str, object]] = []  # of so many modules
        self._behind = Behind(checks.is_ours, checks.marking.helps)
        self._called: dict[str, frozenset[str]] = {}  # by tests, with the kernels behind it
        self._seen: set[object] = set()
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "triton.runtime.interpreter": lambda module: watch(module.GridExecutor, "__call__", failed=self._fails)
        }

    def tell(self) -> None:
        """`{"never_ran": ..., "why": ...}` for each, and `{"tests_call": ..., "kernels": ...}`: of this process,
        another one of the stage may have launched it.
        """
        for kernel, why in self._why.items():
            self._checks.notes.add(never_ran=kernel, why=why)
        for function, kernels in self._called.items():
            self._checks.notes.add(tests_call=function, kernels=sorted(kernels))
        self._why, self._called = {}, {}

    def look(self, test: Any) -> None:
        """At what the tree's modules hold now, in the midst of a test, instead of kernels that they held before; and at
        the kernels behind what its function calls.
        """
        originals = self._checks.originals
        if self._modules != len(originals):
            self._modules = len(originals)
            self._kernels = [each for each in originals.held() if is_kernel(each[2])]
        for module, name, kernel in self._kernels:
            found = vars(sys.modules[module]).get(name) if module in sys.modules else kernel
            if found is not kernel:
                self._why.setdefault(kernel_name(kernel), f"{type(found).__name__} stood for {module}.{name} in tests")
        if hasattr(test, "__code__") and test.__code__ not in self._seen:
            self._seen.add(test.__code__)
            self._called.update(self._behind.called_by(test))

    def _fails(self, frame: FrameType, error: BaseException, grid: Any, *_: Any, **__: Any) -> None:
        kernel = kernel_name(grid)
        if kernel not in self._why and isinstance(error, Exception):
            place = self._caught(outside(frame, "triton"), [kind.__name__ for kind in type(error).__mro__])
            if place:
                why = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
                self._why[kernel] = f"it raised {why}, and {place} went on without it"

    def _caught(self, frame: FrameType | None, kinds: Iterable[str]) -> str:
        """Where in the tree the error is caught and no other one raised; nothing where that is a test's affair."""
        from ..source.uses import program_of

        kinds = set(kinds)
        while frame is not None:
            file = os.path.abspath(frame.f_code.co_filename)
            is_ours = self._checks.is_ours(file)
            if is_ours and self._checks.marking.helps(file):
                return ""
            program = program_of(frame) if is_ours else None
            handler = None if program is None else program.handler(program.at(frame), kinds, lambda manager: False)
            if handler is not None:
                return "" if _raises(handler) else f"{file[len(self._checks.tree) :]} line {frame.f_lineno}"
            frame = frame.f_back
        return ""


def _raises(handler: Sequence[ast.stmt]) -> bool:
    import ast

    return any(isinstance(node, (ast.Raise, ast.Assert)) for statement in handler for node in ast.walk(statement))
