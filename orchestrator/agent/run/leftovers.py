"""What runs that died have left running on the pod: found by their mark, and ended before the next one begins.

A reaper does that where only the agent was killed. Without /proc processes are only known by their group, and what has
left that is not found.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List

from orchestrator.agent.host import processes
from orchestrator.shared.events import LeftoversEnded

_PATIENCE_S = 5.0
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Leftovers:
    """As `processes.describe` tells of them, each with the `run` that it is of: those that have ended, and those that
    could not be; `known_by_mark` says whether all there are can be told."""

    ended: List[Dict[str, Any]]
    left: List[Dict[str, Any]]
    known_by_mark: bool = processes.LINUX

    def event(self) -> LeftoversEnded:
        """For the journal."""
        return LeftoversEnded(
            event="leftovers_ended", ended=self.ended, left=self.left, known_by_mark=self.known_by_mark
        )

    @property
    def tell(self) -> bool:
        """Whether there is anything that the journal has to say of them."""
        return bool(self.ended or self.left) or not self.known_by_mark


def end(workdir: Path) -> Leftovers:
    """End every process of the runs of this workdir. Whoever calls this holds its lock, so that none of them lives."""
    found = _of(workdir)
    told = {pid: {**processes.describe(pid), "run": run_id} for pid, run_id in found.items()}
    until = time.monotonic() + _PATIENCE_S
    while found and time.monotonic() < until:
        processes.send(signal.SIGKILL, found)
        time.sleep(_PAUSE_S)
        found = _of(workdir)
        for pid in found.keys() - told.keys():
            told[pid] = {**processes.describe(pid), "run": found[pid]}
    return Leftovers([told[pid] for pid in told if pid not in found], [told[pid] for pid in found])


def _of(workdir: Path) -> Dict[int, str]:
    """The run of each process that carries the mark of one of the workdir's runs."""
    found = processes.all_marked()
    return {pid: run_id for pid, run_id in found.items() if (workdir / "runs" / run_id).is_dir()}
