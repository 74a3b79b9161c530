"""Files that the Pythons of a stage read: these may be what somebody has measured before, what an earlier run has left,
or, where tests are to run again with wrong code, what this code had returned.
"""

from __future__ import annotations

import os
import sys

from ..hooks import tell, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..stage import Config, Notes

_MOST = 200
_CODE = (".py", ".pyc", ".pth", ".so")
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/etc/", "/usr/", "/lib")
_MADE_THERE = os.O_TRUNC | os.O_EXCL  # what was in it before is not read


class ReadFiles:
    """Noted as `{"read": PATH}`, each once, also what another program is given, and as `{"started": PROGRAM}` such a
    program by its path; not what belongs to the system, to Python or to its packages.
    """

    def __init__(self, config: Config, notes: Notes) -> None:
        self._notes = notes
        own = [sys.prefix, sys.base_prefix, os.path.dirname(config.one("report"))]
        if not config.all("owed"):
            own += [*config.all("tree"), *config.all("home")]
        self._known = (*(path + os.sep for path in own), *_SYSTEM)
        self._seen: set[str] = set()
        self.after_import = {"subprocess": lambda module: watch(module.Popen, "__init__", before=self._starts)}

    def start(self) -> None:
        """By Python's own events, which no way to open a file passes by but that of a library in another language."""
        looks = {"open": self._opens, "sqlite3.connect": self._note}

        def hook(event: str, args: tuple[Any, ...], looks: Any = looks, tell: Any = tell) -> None:  # to the very end
            if event in looks:
                tell(looks[event], *args)

        sys.addaudithook(hook)

    def _opens(self, file: Any, mode: object, flags: int) -> None:
        if not isinstance(file, int) and flags & os.O_ACCMODE != os.O_WRONLY and not flags & _MADE_THERE:
            self._note(file)

    def _starts(self, frame: object, process: Any, args: Any = (), *_: Any, **__: Any) -> None:
        words = args.split() if isinstance(args, (str, bytes)) else args if isinstance(args, (list, tuple)) else ()
        for number, word in enumerate(words):
            if isinstance(word, (str, bytes, os.PathLike)) and os.path.isabs(word) and os.path.isfile(word):
                self._note(word, "read" if number else "started")

    def _note(self, file: str | bytes | os.PathLike[Any], how: str = "read") -> None:
        if len(self._seen) == _MOST:
            return
        path = os.path.abspath(os.fsdecode(file))
        if path not in self._seen and not path.startswith(self._known) and not path.endswith(_CODE):
            self._seen.add(path)
            self._notes.add(**{how: path})
