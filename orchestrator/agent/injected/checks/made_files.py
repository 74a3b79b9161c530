"""Files beside the tests that a session reads, or looks for, and has made itself: golden files that are written where
there are none, which say whatever the code returned. In a commit's fresh tree there never are.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator

_CODE = (".py", ".pyc", ".so")


class MadeFiles:
    """Of a session of pytest in this process."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._since = time.time()
        self._made: set[str] = set()
        self._kept: set[str] = set()  # what was there when it was changed, as files of the commit are
        self.looks: dict[str, Callable[..., None]] = {
            "open": self._opens,
            "os.utime": self._changes,
            "os.rename": lambda source, target, *_: self._changes(target),
        }

    def _opens(self, file: Any, mode: object, flags: int) -> None:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            self._changes(file)
            return
        path = self._data(file)
        if path and (not os.path.isfile(path) or os.stat(path).st_mtime >= self._since):
            self._made.add(path)  # also one that is looked for, which may be made then

    def _changes(self, file: Any, *_: object) -> None:
        path = self._data(file)
        if path and os.path.isfile(path) and os.stat(path).st_mtime < self._since:
            self._kept.add(path)

    def _data(self, file: Any) -> str:
        """The path of a file of the tree of which nothing is known yet; nothing of any other."""
        path = os.path.abspath(os.fsdecode(file)) if isinstance(file, (str, bytes, os.PathLike)) else ""
        is_new = path.startswith(self._tree) and not path.endswith(_CODE)
        return path if is_new and path not in self._made and path not in self._kept else ""

    def told(self, folders: Iterable[str]) -> Iterator[str]:
        """Of those that are still there below `folders` of tests, a sentence; what begins with a dot is a tool's."""
        around = tuple(folder + os.sep for folder in folders if folder + os.sep != self._tree)
        below = [path[len(self._tree) :] for path in sorted(self._made) if path.startswith(around)]
        left = [name for name in below if f"{os.sep}." not in f"{os.sep}{name}" and os.path.isfile(self._tree + name)]
        if left:
            more = f" and {len(left) - 1} more files" if len(left) > 1 else ""
            yield f"tests read {left[0]}{more}, which they have made themselves: the commit holds none"
