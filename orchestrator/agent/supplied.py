"""What a laptop sends on stdin for as long as it takes: a line that went silent is one that broke."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import BinaryIO, cast

_SILENCE_S = 60.0
_BUFFER = 1 << 18


class _Supplied(io.RawIOBase):
    """Ends after _SILENCE_S without a byte."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        fd = sys.stdin.fileno()
        readable, _, _ = select.select([fd], [], [], _SILENCE_S)
        return os.readv(fd, [buffer]) if readable else 0


@contextlib.contextmanager
def supplied() -> Iterator[BinaryIO]:
    """What comes, as a file."""
    with io.BufferedReader(_Supplied(), _BUFFER) as stream:
        yield cast(BinaryIO, stream)
