"""A small process beside the agent that, should the agent be killed, ends what the run has left running."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Callable

from orchestrator.agent.host import processes

_PATIENCE_S = 10.0
_PAUSE_S = 0.05
_LOOKS = 2


class Reaper:
    """Started by the agent; it inherits the pod's lock, which thus is not free before the run's processes are gone.

    `last` is what else is to be done then.
    """

    def __init__(self, run_id: str, last: Callable[[], None] = lambda: None) -> None:
        read_end, self._write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._write_end)
            _watch(read_end, run_id, last)
        os.close(read_end)

    def dismiss(self) -> None:
        """The agent ends by itself: nothing is left to do. Killed, for a stage may have stopped or ended it."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._write_end)


def _watch(pipe: int, run_id: str, last: Callable[[], None]) -> None:
    """Wait for the agent's end; never returns."""
    try:
        os.setsid()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        os.read(pipe, 1)
        end_marked(run_id)
        last()
    finally:
        os._exit(0)


def end_marked(run_id: str) -> None:
    """End every process that carries the run's mark, and those that they start meanwhile."""
    end = time.monotonic() + _PATIENCE_S
    looks = 0  # that found nothing, one after the other: during an exec a process shows no mark for a moment
    while looks < _LOOKS and time.monotonic() < end:
        left = processes.marked(run_id)
        looks = 0 if left else looks + 1
        processes.send(signal.SIGKILL, left)
        time.sleep(_PAUSE_S)
