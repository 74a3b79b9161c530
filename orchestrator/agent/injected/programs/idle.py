"""A program of the tree that holds tests and calls none of them: `python tests/test_x.py`, where nothing runs them; and
`python -m doctest` of files without an example that ran.

Said only where nothing that runs in the file could have called one (`idle_tests`).
"""

from __future__ import annotations

import os
import sys

from ..files import read
from ..stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..stage import Notes


class IdleTests:
    """Tells at the end of a process, as `{"idle": FILE}`, of its program's tests; as `inert`, that it only defines."""

    def __init__(self, tree: str, notes: Notes) -> None:
        self._tree = tree
        self._notes = notes
        # Where the module has it no more when the program has ended.
        self._program = os.path.abspath((getattr(sys, "argv", None) or [""])[0])

    def tell(self) -> None:
        """Look at the program, which has ended."""
        main = sys.modules.get("__main__")
        if getattr(getattr(main, "__spec__", None), "name", "") == "doctest":
            runner = getattr(sys.modules.get("doctest"), "master", None)  # of all files
            ran = getattr(runner, "tries", 1) - getattr(runner, "skips", 0)
            self._tell_of_doctest([word for word in sys.argv[1:] if os.path.isfile(word)], ran)
            return
        file = os.path.abspath(getattr(main, "__file__", None) or self._program)
        if test_around() is not None or not file.startswith(self._tree):
            return
        names = getattr(main, "__dict__", {})  # a program may have left nothing there
        if _may_hold_tests(names):
            from .idle_tests import holds_idle_tests  # which takes `ast`, as the other

            if holds_idle_tests(file):
                self._notes.add(idle=file[len(self._tree) :])
                return
        if _has_functions(names):
            from .mains import may_be_inert

            if not may_be_inert(file):
                return
            from .inert import is_inert

            if is_inert(file):
                self._notes.add(inert=file[len(self._tree) :])

    def _tell_of_doctest(self, files: list[str], ran: int) -> None:
        if test_around() is None and files and (ran == 0 or not any(map(_holds_examples, files))):
            self._notes.add(idle=os.path.relpath(os.path.realpath(files[0]), self._tree))


def _holds_examples(file: str) -> bool:
    return b">>>" in read(file)


def _may_hold_tests(names: dict[str, Any]) -> bool:
    own = [v for v in names.values() if isinstance(v, (type, type(_may_hold_tests))) and v.__module__ == "__main__"]
    inside = [name for value in own if isinstance(value, type) for name in vars(value)]
    return any(name.startswith("test") for name in [*(value.__name__ for value in own), *inside])


def _has_functions(names: dict[str, Any]) -> bool:
    """Whether it has functions of its own to call; most programs say something, and are read no further."""
    return any(isinstance(v, type(_has_functions)) and v.__module__ == "__main__" for v in names.values())
