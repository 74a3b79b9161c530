"""Git LFS: what stands in a commit for a file that it does not hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

_POINTER = re.compile(rb"version https://(?:git-lfs|hawser)\.github\.com/spec/\S+\r?(?:\n|$)")
_MOST_BYTES = 1024  # by its specification, a pointer has less


def is_pointer(f: BinaryIO) -> bool:
    """Whether the file `f`, from its beginning, is a pointer; it is read from its beginning after that."""
    start = f.read(_MOST_BYTES)
    f.seek(0)
    return len(start) < _MOST_BYTES and _POINTER.match(start) is not None


def lies_at(path: Path) -> bool:
    """Whether a pointer does; no directory, nor what cannot be read."""
    try:
        with path.open("rb") as f:
            return is_pointer(f)
    except OSError:
        return False
