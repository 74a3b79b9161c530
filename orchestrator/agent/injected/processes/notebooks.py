"""Cells of notebooks that raise, and commands in them that fail: the kernel goes on, and so may who runs it."""

from __future__ import annotations

from ..hooks import watch
from ..stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

    from ..stage import Notes

_ASKS = "_exit_code"  # of the last command, in IPython


class Notebooks:
    """Tells of them as of calls that failed and children that did: nothing where the exit code says it."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.after_import: dict[str, Callable[[ModuleType], None]] = {"IPython.core.interactiveshell": self._watch}

    def _watch(self, module: Any) -> None:
        watch(module.InteractiveShell, "init_events", after=self._register)

    def _register(self, frame: object, result: object, shell: Any) -> None:
        shell.events.register("post_run_cell", lambda result: self._look_at(result, shell.user_ns))

    def _look_at(self, result: Any, names: Any) -> None:
        """At a cell that has run; of its commands the last one is known."""
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
        self._notes.add(child=what, code=code & 0xFF or code, pid=0, file="", line=0, call=is_call)
