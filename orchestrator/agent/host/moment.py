"""A moment by the clock that stamps files: what was written before it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

# Archives keep times in steps of a second, or two: what is unpacked may look that much older than it is.
_STEP_S = 2.0
_TICK_LIMIT_S = 2.5  # the coarsest clock of a file system has two seconds


class Moment:
    """Now, as the file system of `folder` tells it: some keep time in large steps, others have a clock of their own."""

    def __init__(self, folder: Path) -> None:
        stamp = folder / f".moment.{os.getpid()}"
        stamp.write_bytes(b"")
        self._stamped = stamp.stat().st_mtime
        stamp.unlink()
        self._wall_ahead = _wall_ahead()

    def is_after(self, path: Path) -> bool:
        """Whether the file was last written before this moment; False for one that is not there."""
        try:
            written = os.lstat(path).st_mtime
        except OSError:
            return False
        put_back = max(0.0, self._wall_ahead - _wall_ahead())  # the clock, since then
        return written < self._stamped - put_back - _STEP_S


def tick_after(newest: int, folder: Path) -> int:
    """Wait until the clock of the folder's file system has passed `newest`, in nanoseconds; what it says then.

    Whatever is written from now on gets another time. It is not waited for long where the clock was put back.
    """
    probe = folder / f".tick.{os.getpid()}"
    limit = time.monotonic() + _TICK_LIMIT_S
    try:
        while True:
            probe.write_bytes(b"")
            now = probe.stat().st_ctime_ns
            if now > newest or time.monotonic() >= limit:
                return now
            probe.unlink()
            time.sleep(0.001)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _wall_ahead() -> float:
    return time.time() - time.monotonic()
