"""Whether programs that no guard can enter, compiled ones, compute on CUDA: looked at from outside while they run."""

from __future__ import annotations

import os
import time
from typing import Callable, Iterable

from orchestrator.agent.injected.kernels.cuda import has_context
from orchestrator.shared.pythons import is_python

# CUDA takes longer than that to begin, so that none is missed; a look costs milliseconds.
_PAUSE_S = 0.2


class CudaWatch:
    """Of one stage; `seen` once a program of it had a CUDA context."""

    def __init__(self) -> None:
        self.seen = False
        self._next = 0.0

    def wait(self) -> float:
        """Seconds until the next look."""
        return float("inf") if self.seen else max(0.0, self._next - time.monotonic())

    def look(self, pids: Callable[[], Iterable[int]]) -> None:
        """Look at the stage's processes, if it is time."""
        if self.wait() == 0.0:
            # A Python tells itself, and better.
            self.seen = any(has_context(pid) for pid in pids() if not _runs_python(pid))
            self._next = time.monotonic() + _PAUSE_S


def _runs_python(pid: int) -> bool:
    try:
        return is_python(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
