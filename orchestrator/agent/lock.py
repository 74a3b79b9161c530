"""The pod's lock: a kernel lock, so that a dead holder's falls away by itself; its file says who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

_TRIES = 6
_PAUSE_S = 0.02


class Busy(Exception):
    """Someone else holds the lock; `holder` is what they wrote into it."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__(f"the pod is held by {holder.get('holder', 'an unknown run')}")
        self.holder = holder


class Lock:
    """The lock of the pod with this workdir, held from construction until `release`; Busy if it is not to be had."""

    def __init__(self, workdir: Path, holder: dict[str, Any]) -> None:
        self._fd = os.open(_path(workdir), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _try(self._fd, fcntl.LOCK_EX):
            found = _read(self._fd)
            os.close(self._fd)
            raise Busy(found)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(holder).encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def holder(workdir: Path) -> dict[str, Any] | None:
    """What the lock's holder wrote into it; None if nobody holds it."""
    try:
        fd = os.open(_path(workdir), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return None if _try(fd, fcntl.LOCK_SH, tries=1) else _read(fd)
    finally:
        os.close(fd)


def _path(workdir: Path) -> Path:
    return Path(workdir) / "lock"


def _try(fd: int, kind: int, tries: int = _TRIES) -> bool:
    """More than once, since someone who only looks holds it for a moment too."""
    for attempt in range(tries):
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_PAUSE_S if attempt < tries - 1 else 0)
    return False


def _read(fd: int) -> dict[str, Any]:
    """Empty while the holder has not written yet."""
    try:
        found = json.loads(os.pread(fd, 1 << 16, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
