"""The pod's lock: a kernel lock, so that a dead holder's falls away by itself; its file says who holds it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from orchestrator.agent.host import machine, processes
from orchestrator.shared.locks import A_MOMENT_S, opened, strangers, take

# The lock of an agent that was killed or failed is free when the reaper has ended what the run had left.
_SWEPT_S = 15.0
_POLL_S = 0.2


class Busy(Exception):
    """Someone else holds the lock; `holder` is what they wrote into it."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__(f"the pod is held by {holder.get('holder', 'an unknown run')}")
        self.holder = holder


class Lock:
    """The lock of the pod with this workdir, held from construction until `release`; Busy if it is not to be had.

    `dead` is what a holder that died with the lock had written into it, and whether the machine was started again since
    ("rebooted"); None if the last one let it go.
    """

    def __init__(self, workdir: Path, holder: dict[str, Any]) -> None:
        self._fd = opened(_path(workdir))
        if not self._take() and not self._take_from_strangers(workdir):
            found = _read(self._fd)
            os.close(self._fd)
            raise Busy(found)
        boot = machine.boot_id()
        left = _read(self._fd)
        self.dead = {**left, "rebooted": left.get("boot_id") != boot} if left else None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps({**holder, "pid": os.getpid(), "boot_id": boot}).encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._fd, 0)
        os.close(self._fd)

    def _take(self) -> bool:
        """Whether it is had. It is waited for while who has it says nothing (the reaper of a run that let it go, or one
        who has only just taken it), or is dead; not for another user."""
        end = time.monotonic() + _SWEPT_S
        while not take(self._fd, A_MOMENT_S):
            found = _read(self._fd)
            if (found and not _is_dead(found)) or strangers(self._fd) or time.monotonic() >= end:
                return False
        return True

    def _take_from_strangers(self, workdir: Path) -> bool:
        """Whether another user has the lock, and now has it of a file that is none of the pod's any more: the workdir
        is this user's alone, so it was opened before that was so.
        """
        if not strangers(self._fd):
            return False
        os.close(self._fd)
        with contextlib.suppress(FileNotFoundError):
            _path(workdir).unlink()
        self._fd = opened(_path(workdir))
        return self._take()


def holder(workdir: Path) -> dict[str, Any] | None:
    """What the lock's holder wrote into it, and whether it is "dead", which frees the lock in a moment; None if nobody
    holds it."""
    try:
        fd = os.open(_path(workdir), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        if take(fd, 0.0, shared=True) or strangers(fd):
            return None
        found = _read(fd)
        return {**found, "dead": _is_dead(found)}
    finally:
        os.close(fd)


def wait(workdir: Path, seconds: float) -> dict[str, Any] | None:
    """The holder after at most `seconds`, in which the lock may be let go: then None."""
    end = time.monotonic() + seconds
    while True:
        found = holder(workdir)
        if found is None or time.monotonic() >= end:
            return found
        time.sleep(_POLL_S)


def _path(workdir: Path) -> Path:
    return Path(workdir) / "lock"


def _is_dead(found: dict[str, Any]) -> bool:
    """Whether the process that wrote `found` is not there any more, as far as this machine can tell."""
    pid = found.get("pid")
    return isinstance(pid, int) and found.get("boot_id") == machine.boot_id() and not processes.is_alive(pid)


def _read(fd: int) -> dict[str, Any]:
    """Empty while the holder has not written yet."""
    try:
        found = json.loads(os.pread(fd, 1 << 16, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
