"""Ask a program of the pod: bounded time, no input, no surprise."""

from __future__ import annotations

import subprocess
from typing import Sequence

TIMEOUT_S = 15.0


def ask(argv: Sequence[str], timeout: float = TIMEOUT_S) -> str | None:
    """What the program prints; None if it is not there, fails, or does not end in `timeout` seconds."""
    try:
        done = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=timeout
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
