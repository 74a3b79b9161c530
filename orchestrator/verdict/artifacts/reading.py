"""What a file says that was measured."""

from __future__ import annotations

from typing import Callable, Literal, NamedTuple, Optional, Tuple

Better = Literal["lower", "higher", "neither"]
Flag = Literal["throttled", "shared_gpu", "host_bound", "noisy", "bimodal", "impossible"]
FLAGS: Tuple[Flag, ...] = ("throttled", "shared_gpu", "host_bound", "noisy", "bimodal", "impossible")


class Reading(NamedTuple):
    """What a file says of one row in one column: `row` are the keys with their values, as text."""

    row: Tuple[Tuple[str, str], ...]
    column: str
    unit: str
    better: Better
    samples: Tuple[float, ...]
    flags: Tuple[str, ...] = ()


Beside = Callable[[str], Optional[bytes]]
"""The content of a file that an artifact names, by its path relative to the artifact; None if it is not there."""
