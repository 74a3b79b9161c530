"""A runner of environments that only prepared them: `tox --notest`, a tox.ini without commands, sessions of nox that
install and run nothing.
"""

from __future__ import annotations

import os
import sys

from ..frames import outside, package
from ..hooks import watch
from ..stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from ..processes.ends import End
    from ..stage import Notes

MODULES = ("tox.run", "nox.sessions")
_RUNNERS = ("tox", "nox")
_PREPARING = ("pip", "uv", "virtualenv", "venv", "conda", "mamba", "micromamba", "ensurepip")
_STARTING = ("subprocess", "os", "asyncio", "threading", "concurrent")


class EmptyRuns:
    """Tells, of a stage that is a runner, what all was that it started, if that only prepares."""

    def __init__(self, end: End, notes: Notes) -> None:
        self._end, self._notes = end, notes
        self._runner = os.path.basename((getattr(sys, "argv", None) or [""])[0]).partition(".")[0]
        self._started: set[str] = set()
        self._is_watching = False
        self.after_import: dict[str, Callable[[ModuleType], None]] = dict.fromkeys(MODULES, self._watch)

    def _watch(self, module: ModuleType) -> None:
        import subprocess  # which it has imported by now

        if not self._is_watching:
            self._is_watching = True
            watch(subprocess.Popen, "__init__", before=self._starts)

    def _starts(self, frame: FrameType, process: object, args: Any = None, *_: Any, **__: Any) -> None:
        starter = outside(frame, *_STARTING)
        if starter is not None and package(starter) in ("noxfile", "__main__", *_RUNNERS):
            self._started.add(_program(args))

    def tell(self) -> None:
        """At the end of the process."""
        main = sys.modules.get("__main__")
        runner = getattr(getattr(main, "__spec__", None), "parent", None) or self._runner
        if runner not in _RUNNERS or not self._started.issubset(_PREPARING) or test_around() is not None:
            return
        if self._end.is_of_stage():
            only = f" but {', '.join(sorted(self._started))}" if self._started else ""
            self._notes.add(doubt=f"{runner} ran nothing{only}")


def _program(args: Any) -> str:
    """What a command runs, the module where it names one; blank where it is more than a word."""
    words = [os.fsdecode(word) for word in args] if isinstance(args, (list, tuple)) else [str(args)]
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return os.path.basename(words[0]) if words else ""
