"""Files that the Pythons of a stage read: these may be what somebody has measured before, what an earlier run has left,
or, where tests are to run again with wrong code, what this code had returned.
"""

from __future__ import annotations

import os
import sys
from sys import _getframe  # bound here, as in `hooks`

from ..frames import local, outside
from ..hooks import tell, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Mapping

    from ..stage import Config, Notes

_MOST = 200
_CODE = (".py", ".pyc", ".pth", ".so")
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/etc/", "/usr/", "/lib")
_MADE_THERE = os.O_TRUNC | os.O_EXCL  # what was in it before is not read


class ReadFiles:
    """Noted as `{"read": PATH}`, each once, also what another program is given, and as `{"started": PROGRAM}` such a
    program by its path; not what belongs to the system, to Python or to its packages. Who was the first to open it may
    have been given its name by code of the tree (`"named": true`). What a link of the commit leads to outside of the
    tree is noted by where it lies, with the link (`"link": PATH`).
    """

    def __init__(self, config: Config, notes: Notes) -> None:
        self._notes = notes
        own = [sys.prefix, sys.base_prefix, os.path.dirname(config.one("report"))]
        if not config.all("owed"):
            own += [*config.all("tree"), *config.all("home")]
        self._known = (*(path + os.sep for path in own), *_SYSTEM)
        self._tree = config.one("tree") + os.sep
        self._has_links = bool(config.all("leaves"))
        self._seen: set[str] = set()
        self._looks: dict[str, list[Callable[..., None]]] = {"open": [self._opens], "sqlite3.connect": [self._note]}
        self.after_import = {"subprocess": lambda module: watch(module.Popen, "__init__", before=self._starts)}

    def start(self) -> None:
        """By Python's own events, which no way to open a file passes by but that of a library in another language."""

        def hook(
            event: str, args: tuple[Any, ...], looks: Any = self._looks, tell: Any = tell
        ) -> None:  # to the very end
            if event in looks:
                for look in looks[event]:
                    tell(look, *args)

        sys.addaudithook(hook)

    def when(self, looks: Mapping[str, Callable[..., None]]) -> None:
        """Have others look at events too, by their names: each hook of Python's own is called for all events."""
        for event, look in looks.items():
            self._looks.setdefault(event, []).append(look)

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
        path, more = os.path.abspath(os.fsdecode(file)), {}
        if path in self._seen:
            return
        if self._has_links and path.startswith(self._tree):
            place = os.path.realpath(path)
            if not place.startswith(self._tree):
                path, more = place, {"link": os.path.relpath(path, self._tree)}
        if not path.startswith(self._known) and not path.endswith(_CODE):
            self._seen.add(path)
            is_named = how == "read" and _names(_getframe(1), os.fsdecode(file), self._tree)
            self._notes.add(**{how: path, **more, **({"named": True} if is_named else {})})


def _names(frame: FrameType | None, file: str, tree: str) -> bool:
    """Whether code of the tree has opened the file, or has called what did with its name among the arguments."""
    frame, called = outside(frame), None
    while frame is not None and not frame.f_code.co_filename.startswith(tree):
        frame, called = frame.f_back, frame
    if frame is None or called is None:
        return frame is not None
    code = called.f_code
    given = [local(called, name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    return any(isinstance(each, (str, bytes, os.PathLike)) and os.fsdecode(each) == file for each in given)
