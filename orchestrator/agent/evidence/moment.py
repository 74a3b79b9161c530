"""A moment by the clock that stamps files: what was written before it."""

from __future__ import annotations

import os
import time
from pathlib import Path

# Archives keep times in steps of a second, or two: what is unpacked may look that much older than it is.
_STEP_S = 2.0


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


def _wall_ahead() -> float:
    return time.time() - time.monotonic()
