"""The laptop's copy of a run's journal: it grows by whole lines only, whoever else follows the same run from here."""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path

from orchestrator.files import on_this_disk
from orchestrator.shared.locks import take

# No line is longer.
_PORTION = 4 << 20


class JournalCopy:
    """The copy in `file`, read from its beginning on; `seen` is how many of its bytes were given out."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.seen = 0

    def extend(self, lines: bytes = b"") -> bytes:
        """Append `lines`, which follow the `seen` bytes, and give them back; or the next portion of what somebody else
        has appended there.

        The half line that a laptop killed while it appended leaves is dropped. DiskError if `lines` cannot be written;
        then nothing of them is.
        """
        with on_this_disk(self._file), FileIO(self._file, "a+") as f:
            take(f.fileno())
            f.seek(self.seen)
            found = f.read(_PORTION)
            fresh = found[: found.rfind(b"\n") + 1]
            if not fresh or self.seen + len(found) == f.seek(0, os.SEEK_END):
                f.truncate(self.seen + len(fresh))
            if not fresh:
                fresh = lines
                _append(f, lines, self.seen)
        self.seen += len(fresh)
        return fresh


def _append(f: FileIO, lines: bytes, size: int) -> None:
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[f.write(rest) :]
    except OSError:
        f.truncate(size)
        raise
