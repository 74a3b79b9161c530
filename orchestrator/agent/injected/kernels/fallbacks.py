"""Kernels that never ran, because what each launch of them raised was caught by code of the tree, which then did
something else. Told as a doubt: it may be meant, for what a kernel cannot do.

In Triton's interpreter: there is no cheap place to see what a compiled kernel's launch raises.
"""

from __future__ import annotations

import os

from ..frames import outside
from ..hooks import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from types import FrameType, ModuleType
    from typing import Any, Callable, Iterable, Sequence

    from ..checks.records import Checks
    from .launches import Launches


class Fallbacks:
    """Of this process."""

    def __init__(self, checks: Checks, launches: Launches) -> None:
        self._checks, self._launches = checks, launches
        self._raised: dict[str, str] = {}
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "triton.runtime.interpreter": lambda module: watch(module.GridExecutor, "__call__", failed=self._fails)
        }

    def tell(self) -> None:
        """`{"doubt": ...}` for each."""
        for kernel, said in self._raised.items():
            if kernel not in self._launches.names:
                self._checks.notes.add(doubt=said)
        self._raised = {}

    def _fails(self, frame: FrameType, error: BaseException, grid: Any, *_: Any, **__: Any) -> None:
        kernel = str(grid.fn.__name__)
        if kernel not in self._raised and isinstance(error, Exception):
            place = self._caught(outside(frame, "triton"), [kind.__name__ for kind in type(error).__mro__])
            if place:
                why = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
                self._raised[kernel] = f"the kernel {kernel} never ran: it raised {why}, and {place} went on without it"

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
