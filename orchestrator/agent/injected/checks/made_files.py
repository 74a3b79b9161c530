"""Files beside the tests that a session reads and has made itself: golden files that are written where there are none,
which say whatever the code returned. In a commit's fresh tree there never are.
"""

from __future__ import annotations

import os
import sys
import time

from ..hooks import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

_CODE = (".py", ".pyc", ".so")


class MadeFiles:
    """Of a session of pytest in this process."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._since = time.time()
        self._read: set[str] = set()
        sys.addaudithook(lambda event, args: tell(self._opens, *args) if event == "open" else None)

    def _opens(self, file: Any, mode: object, flags: int) -> None:
        if isinstance(file, (str, bytes, os.PathLike)) and flags & os.O_ACCMODE == os.O_RDONLY:
            path = os.path.abspath(os.fsdecode(file))
            is_data = path.startswith(self._tree) and not path.endswith(_CODE) and path not in self._read
            if is_data and os.path.isfile(path) and os.stat(path).st_ctime >= self._since:
                self._read.add(path)

    def told(self, folders: Iterable[str]) -> Iterator[str]:
        """Of those that are still there below `folders` of tests, a sentence; what begins with a dot is a tool's."""
        around = tuple(folder + os.sep for folder in folders if folder + os.sep != self._tree)
        below = [path[len(self._tree) :] for path in sorted(self._read) if path.startswith(around)]
        left = [name for name in below if f"{os.sep}." not in f"{os.sep}{name}" and os.path.isfile(self._tree + name)]
        if left:
            more = f" and {len(left) - 1} more files" if len(left) > 1 else ""
            yield f"tests read {left[0]}{more}, which they have made themselves: the commit holds none"
