"""Kernel locks on files (flock): a dead holder's falls away by itself, and no lock outlives its process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import List, Optional

_PAUSE_S = 0.02
A_MOMENT_S = 0.1
"""Someone who only looks whether a lock is held holds it for a moment too."""


@contextlib.contextmanager
def locked(path: Path, patience: Optional[float] = None, *, shared: bool = False) -> Iterator[bool]:
    """Hold the lock of the file `path`, which is made if need be; whether it was had within `patience` seconds (None:
    wait for ever). A `shared` lock keeps out only those who want it alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = opened(path)
    try:
        yield take(fd, patience, shared=shared)
    finally:
        os.close(fd)


def opened(path: Path) -> int:
    """The file of a lock, made if need be. OSError where something else than a file is in its place."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is no file, and a lock was expected", str(path))
    return fd


def strangers(fd: int) -> List[int]:
    """Processes of other users that took the lock of this open file, where /proc tells (its manual, "locks")."""
    found, inode = [], os.fstat(fd).st_ino
    with contextlib.suppress(OSError, ValueError), open("/proc/locks", encoding="ascii") as table:
        for line in table:
            words = line.split()  # number, FLOCK, ADVISORY, WRITE, pid, major:minor:inode, first, last
            if len(words) == 8 and words[1] == "FLOCK" and int(words[5].rpartition(":")[2]) == inode:
                with contextlib.suppress(OSError):
                    if os.stat(f"/proc/{words[4]}").st_uid != os.getuid():
                        found.append(int(words[4]))
    return found


def take(fd: int, patience: Optional[float] = None, *, shared: bool = False) -> bool:
    """As `locked`, of an open file, for as long as it is open."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if patience is None:
        fcntl.flock(fd, kind)
        return True
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_PAUSE_S)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock of the file `path` now."""
    with locked(path, 0.0) as free:
        return not free
