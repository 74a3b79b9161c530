"""Whether programs that no guard can enter, compiled ones, compute on CUDA: looked at from outside while they run."""

from __future__ import annotations

import os
import time
from typing import Callable, Iterable

from orchestrator.agent.injected.kernels.cuda import has_context

# CUDA takes longer than that to begin, so that none is missed; a look costs milliseconds.
_PAUSE_S = 0.2
_PYTHONS = ("python", "pypy")  # they tell themselves, and better


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
            self.seen = any(has_context(pid) for pid in pids() if not _is_python(pid))
            self._next = time.monotonic() + _PAUSE_S


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(_PYTHONS)
    except OSError:
        return False
