"""Kernel locks on files (flock): a dead holder's falls away by itself, and no lock outlives its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

_PAUSE_S = 0.02
A_MOMENT_S = 0.1
"""Someone who only looks whether a lock is held holds it for a moment too."""


@contextlib.contextmanager
def locked(path: Path, patience: Optional[float] = None, *, shared: bool = False) -> Iterator[bool]:
    """Hold the lock of the file `path`, which is made if need be; whether it was had within `patience` seconds (None:
    wait for ever). A `shared` lock keeps out only those who want it alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield take(fd, patience, shared=shared)
    finally:
        os.close(fd)


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
