"""Which files of a directory tree are written, replaced or read while it is watched: what their times do not tell.

Linux's inotify(7). A `touch` sets times as a write does, `cp -p` sets them back, a folder that is moved away and back
leaves no trace in its files: the kernel's events tell them apart. What goes through memory maps alone is not seen.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Dict, Iterable, Iterator, Optional, Set

_ACCESS, _MODIFY, _ATTRIBUTES, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x1, 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_ONLY_FOLDERS = 0x01000000
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name


READ = _ACCESS
WRITTEN = _MODIFY | _MOVED_FROM | _MOVED_TO | _DELETE
ANY_CHANGE = WRITTEN | _CREATE | _ATTRIBUTES


class FileWatch:
    """Watches the folders (relative paths, "" for the top) of `root`, and what lies directly in them, until `close`.

    Made once and asked often: the kernel takes longer to end a watch than many a stage to run.
    """

    def __init__(self, root: Path, folders: Iterable[str], mask: int = WRITTEN) -> None:
        self._folders: Dict[int, str] = {}
        self._names: Set[str] = set()
        self._fd = -1
        self._is_whole = True
        try:
            self._begin(os.fsencode(root), folders, mask | _ONLY_FOLDERS)
        except (OSError, AttributeError):  # no Linux, or no more watches for this user
            self.close()

    def take(self) -> Optional[Set[str]]:
        """The files and folders that events told of since it was last asked; None if not known."""
        if self._fd < 0:
            return None
        try:
            found = set(self._events())
        except OverflowError:
            self.close()
            return None
        self._is_whole = self._is_whole and self._names.isdisjoint(found)
        return found

    @property
    def is_whole(self) -> bool:
        """Whether it still watches its folders: none of them was seen to be moved, removed or replaced."""
        return self._fd >= 0 and self._is_whole

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin(self, root: bytes, folders: Iterable[str], mask: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        for folder in folders:
            watch = libc.inotify_add_watch(self._fd, os.path.join(root, os.fsencode(folder)), ctypes.c_uint32(mask))
            if watch < 0:
                raise OSError(ctypes.get_errno(), "inotify")
            self._folders[watch] = folder
        self._names = set(self._folders.values()) - {""}

    def _events(self) -> Iterator[str]:
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    raise OverflowError
                if mask & _IGNORED:
                    self._is_whole = False
                name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
                if name and watch in self._folders:
                    yield os.path.join(self._folders[watch], name)
