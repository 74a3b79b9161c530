"""A stage that floods its stdout, on a pod behind SSH: what it costs in memory, and how soon its last line is seen."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import ROOT, proc
from tests.support.measured import measured, peak_mib
from tests.support.project import Project, new_project
from tests.support.sshd import Sshd

# Lines of every kind, then a pause, and a line by which live following is measured. The stage says when it wrote it.
_FLOOD = """\
import os, sys, time
total = int(sys.argv[1])
out = sys.stdout.buffer
block = b"".join([b"line of the flood\\n" * 3000, b"\\x1b[31m\\xff\\xfe\\r", b"x" * 5000, b"\\n"])
written = 0
while written < total:
    written += out.write(block)
out.flush()
time.sleep(1.5)
with open(sys.argv[2], "w") as f:
    f.write(str(time.time()))
out.write(b"THE LATER LINE\\n")
out.flush()
time.sleep(6)
"""
_RUNBOOK = """\
name: flood
environment: {{python: system}}
limits: {{log_bytes: {log_bytes}}}
stages:
  - name: flood
    run: [python, flood.py, "{total}", "{stamp}"]
    expect: {{artifacts: [{{path: done.txt, from: "tree:done.txt"}}]}}
"""
_OWE = "open('done.txt', 'w').write('done')\n"


@dataclass(frozen=True)
class Flooded:
    """What was measured; memory in MiB, `latency_s` from the line's writing to its being shown on the laptop."""

    result: dict[str, Any]
    home: Path
    agent_peak_mib: float
    laptop_peak_mib: float
    latency_s: float


def flood(folder: Path, server: Sshd, total: int, log_bytes: int) -> Flooded:
    """Validate a stage that prints `total` bytes, and watch both sides meanwhile."""
    workdir, stamp = folder / "workdir", folder / "stamp"
    project = new_project(folder, {"p": server.entry(workdir=str(workdir))})
    runbook = _RUNBOOK.format(total=total, log_bytes=log_bytes, stamp=stamp)
    project.commit({"flood.py": _FLOOD + _OWE, "runbooks/flood.yaml": runbook})
    with _Laptop(project) as laptop:
        agent_peak = _watch_agent(workdir, laptop)
        result, laptop_peak = laptop.end()
    home = project.root / result["path"]
    return Flooded(result, home, agent_peak, laptop_peak, laptop.seen_at - float(stamp.read_text()))


class _Laptop:
    """`validate`, its standard error a terminal, where the last line of a stage's output is shown as it comes."""

    def __init__(self, project: Project) -> None:
        self.seen_at = 0.0
        self._peak = project.root.parent / "peak"
        self._screen, terminal = os.openpty()
        self._out = (project.root.parent / "out.json").open("w+b")
        self._process = subprocess.Popen(
            measured(self._peak, "validate", "--pod", "p", "--runbook", "flood", "--json"),
            cwd=project.root,
            env=project.environment(PYTHONPATH=str(ROOT), TERM="xterm", COLUMNS="120"),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=terminal,
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> _Laptop:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._reader.join()
        os.close(self._screen)
        self._out.close()

    @property
    def goes_on(self) -> bool:
        """Whether the process lives; it is left for `end` to reap."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def end(self) -> tuple[dict[str, Any], float]:
        """Its result and the most memory that it has had."""
        self._process.wait()
        self._out.seek(0)
        return json.loads(self._out.read()), peak_mib(self._peak)

    def _read(self) -> None:
        shown = b""
        while True:
            try:
                piece = os.read(self._screen, 1 << 16)
            except OSError:  # the terminal is closed
                return
            shown = (shown + piece)[-10_000:]
            if not self.seen_at and b"THE LATER LINE" in shown:
                self.seen_at = time.time()


def _watch_agent(workdir: Path, laptop: _Laptop) -> float:
    """The largest memory that the run's agent ever had, in MiB, until the laptop has its result."""
    peak = 0.0
    while laptop.goes_on:
        for journal in workdir.glob("runs/*/journal.jsonl"):
            started = json.loads(journal.read_bytes().split(b"\n", 1)[0] or b"{}")
            peak = max(peak, proc.peak_kib(started.get("pid", 0)) / 1024)
        time.sleep(0.1)
    return peak
