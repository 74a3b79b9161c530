"""Clocks, temperature, power and throttling of the GPUs while a stage runs, sampled by one nvidia-smi."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Callable, Iterator, Optional

from orchestrator.agent.host.processes import ending_with_parent
from orchestrator.shared.telemetry import FIELDS, FILE, MOST_BYTES

_PERIOD_S = 0.5
_MOST_SAMPLES = 7200
_END_S = 2.0


@contextlib.contextmanager
def sampling(folder: Path, wall_s: float) -> Iterator[Optional[int]]:
    """Sample into `folder` while the context lasts, for at most `wall_s` seconds; the pid of the process that does it.

    None where there is no nvidia-smi. The file is bounded: over long stages fewer samples are taken.
    """
    if shutil.which("nvidia-smi") is None:
        yield None
        return
    period_ms = round(1000 * max(_PERIOD_S, wall_s / _MOST_SAMPLES))
    command = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,nounits", "-lms", str(period_ms)]
    with (folder / FILE).open("xb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, preexec_fn=_as_helper()
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _as_helper() -> Callable[[], None]:
    """What the new process does before its exec: it ends with the agent, and writes no more than a bounded file."""
    end_with_agent = ending_with_parent()

    def prepare() -> None:
        end_with_agent()
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))

    return prepare
