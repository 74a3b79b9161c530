"""Which files of a directory tree are written or replaced while it is watched: what their times do not tell.

Linux's inotify(7). A `touch` sets times as a write does, `cp -p` sets them back, a folder that is moved away and back
leaves no trace in its files: the kernel's events tell them apart. Writes through memory maps alone are not seen.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Dict, Iterable, Iterator, Optional, Set

_MODIFY, _MOVED_FROM, _MOVED_TO, _DELETE = 0x2, 0x40, 0x80, 0x200
_MASK = _MODIFY | _MOVED_FROM | _MOVED_TO | _DELETE | 0x01000000  # IN_ONLYDIR
_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name


class FileWatch:
    """Watches the folders (relative paths, "" for the top) of `root`, and what lies directly in them, until `stop`."""

    def __init__(self, root: Path, folders: Iterable[str]) -> None:
        self._folders: Dict[int, str] = {}
        self._fd = -1
        try:
            self._begin(os.fsencode(root), folders)
        except (OSError, AttributeError):  # no Linux, or no more watches for this user
            self._close()

    def stop(self) -> Optional[Set[str]]:
        """The files and folders that were written, moved or removed; None where that is not known."""
        if self._fd < 0:
            return None
        try:
            return set(self._events())
        except OverflowError:
            return None
        finally:
            self._close()

    def _begin(self, root: bytes, folders: Iterable[str]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        for folder in folders:
            watch = libc.inotify_add_watch(self._fd, os.path.join(root, os.fsencode(folder)), ctypes.c_uint32(_MASK))
            if watch < 0:
                raise OSError(ctypes.get_errno(), "inotify")
            self._folders[watch] = folder

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
                name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
                if name and watch in self._folders:
                    yield os.path.join(self._folders[watch], name)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
