"""Waiting for what comes about by itself: long enough for a busy machine, and not longer than it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], what: str = "it", seconds: float = 60) -> T:
    """What `condition` gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come about in {seconds:g} s"
        time.sleep(0.03)
    return found
