"""The command line, run in a process that says at its end how much memory it has had.

What the kernel tells a parent of a child (ru_maxrss) counts the parent itself, which the child was forked from: a test
that has read many files would be taken for the laptop.
"""

from __future__ import annotations

import sys
from pathlib import Path

_MEASURED = """
import runpy, sys
peak = sys.argv.pop(1)
try:
    runpy.run_module("orchestrator", run_name="__main__", alter_sys=True)
finally:
    with open("/proc/self/status") as status, open(peak, "w") as f:
        f.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def measured(peak: Path, *arguments: str) -> list[str]:
    """The program that runs `nsa-pod ARGUMENTS`; the file `peak` is for `peak_mib`."""
    return [sys.executable, "-c", _MEASURED, str(peak), *arguments]


def peak_mib(peak: Path) -> float:
    """The most memory that the process has had resident."""
    return int(peak.read_text()) / 1024
