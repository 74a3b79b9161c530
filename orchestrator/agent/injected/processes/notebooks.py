"""Cells of notebooks that raise, and commands in them that fail: the kernel goes on, and so may who runs it. And
kernels that ran none, as where all cells are tagged to be skipped.
"""

from __future__ import annotations

import atexit

from ..hooks import watch
from ..stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

    from ..stage import Notes

_OF_KERNELS = "ZMQInteractiveShell"
_ASKS = "_exit_code"  # of the last command, in IPython


class Notebooks:
    """Tells of them as of calls that failed and children that did: nothing where the exit code says it."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._ran = 0  # cells
        self.after_import: dict[str, Callable[[ModuleType], None]] = {"IPython.core.interactiveshell": self._watch}

    def _watch(self, module: Any) -> None:
        watch(module.InteractiveShell, "init_events", after=self._register)

    def _register(self, frame: object, result: object, shell: Any) -> None:
        shell.events.register("post_run_cell", lambda result: self._look_at(result, shell.user_ns))
        if type(shell).__name__ == _OF_KERNELS and test_around() is None:
            atexit.register(self._tell_if_none_ran)

    def _tell_if_none_ran(self) -> None:
        if not self._ran:
            self._notes.add(doubt="a notebook's kernel ended, and had run no cell")

    def _look_at(self, result: Any, names: Any) -> None:
        """At a cell that has run; of its commands the last one is known."""
        self._ran += 1
        if self._ran == 1:
            self._notes.add(cells=True)
        if test_around() is not None:
            return
        error = result.error_before_exec or result.error_in_exec
        commands = [line.strip() for line in result.info.raw_cell.splitlines() if line.strip().startswith("!")]
        code = names.get(_ASKS) if commands else 0
        if error is not None and not isinstance(error, KeyboardInterrupt):
            self._add(f"cell of a notebook ({type(error).__name__})", 1, is_call=True)
        elif isinstance(code, int) and code and not any(_ASKS in str(cell) for cell in names.get("In", ())):
            self._add(commands[-1].lstrip("! "), code, is_call=False)

    def _add(self, what: str, code: int, *, is_call: bool) -> None:
        self._notes.add(
            child=what, code=code & 0xFF or code, pid=0, file="", line=0, how="call" if is_call else "child"
        )
