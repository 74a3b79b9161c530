"""Where a stage's streams go: files of bounded size, filled through pipes that never block the stage for long."""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import Callable, List

from orchestrator.shared.redaction import NOTHING, Redactor
from orchestrator.shared.text import last_line

_TAIL_BYTES = 256 << 10
_LAST_BYTES = 4096


class Log:
    """A stream kept in a file of about `limit` bytes: its beginning and its end, with a note of what was cut between.

    A disk that is full cuts too; it never stops the reading of the stream. Secret values that `redactor` knows are
    replaced before anything else sees them.
    """

    def __init__(self, path: Path, limit: int, redactor: Redactor = NOTHING) -> None:
        self._secrets = redactor.stream()
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._tail_limit = min(_TAIL_BYTES, limit // 4)
        self._room = limit - self._tail_limit
        self._tail = bytearray()
        self._last = b""
        self.total = 0
        self.cut = 0

    @property
    def redacted(self) -> List[str]:
        """Names of the values that were replaced."""
        return sorted(self._secrets.found)

    def write(self, piece: bytes) -> None:
        self._keep(self._secrets.feed(piece))

    def _keep(self, piece: bytes) -> None:
        self.total += len(piece)
        self._last = (self._last + piece)[-_LAST_BYTES:]
        head, rest = piece[: self._room], piece[self._room :]
        self._room -= len(head)
        self._put(head)
        self._tail += rest
        excess = len(self._tail) - self._tail_limit
        if excess > self._tail_limit or len(rest) > self._tail_limit:  # now and then, not for every piece
            self.cut += excess
            del self._tail[:excess]

    def last_line(self) -> str:
        return last_line(self._last)

    def close(self) -> None:
        """Write the end of the stream, after a line that says how much is not there. A second time does nothing."""
        if self._file.closed:
            return
        self._keep(self._secrets.end())
        excess = max(0, len(self._tail) - self._tail_limit)
        self.cut += excess
        if self.cut:
            self._put(b"\n[nsa-pod: %d bytes are cut here]\n" % self.cut)
        self._put(bytes(self._tail[excess:]))
        self._file.close()

    def _put(self, piece: bytes) -> None:
        self.cut += _write(self._file, piece)


class EventFile:
    """The pytest plugin's lines, kept as they come; once the disk is full no more are, and the session has no end.

    `tell` is called with each piece.
    """

    def __init__(self, path: Path, redactor: Redactor, tell: Callable[[bytes], None]) -> None:
        self._secrets = redactor.stream()
        self._tell = tell
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._full = False

    def write(self, piece: bytes) -> None:
        self._keep(self._secrets.feed(piece))

    def _keep(self, piece: bytes) -> None:
        self._tell(piece)
        if not self._full:
            self._full = _write(self._file, piece) > 0

    def close(self) -> None:
        """Write what is held back. A second time does nothing."""
        if not self._file.closed:
            self._keep(self._secrets.end())
            self._file.close()


def _write(file: FileIO, piece: bytes) -> int:
    """Write what the disk takes of `piece`; the number of bytes that it did not take."""
    rest = memoryview(piece)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        return len(rest)
    return 0
