"""What a laptop sends on stdin for as long as it takes: a line that went silent is one that broke."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import BinaryIO, cast

_SILENCE_S = 60.0
_BUFFER = 1 << 18
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031  # fcntl has its name from Python 3.10 on


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
    """What comes, as a file; what is in the pipe when the connection breaks still comes."""
    with contextlib.suppress(OSError):  # it is no pipe, this is no Linux, or one user may have no more of them
        fcntl.fcntl(sys.stdin.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)
    with io.BufferedReader(_Supplied(), _BUFFER) as stream:
        yield cast(BinaryIO, stream)
