"""The run's journal: JSON lines, each holding the hash of the line before it, synced to disk as they are written."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Iterable, List

from orchestrator.shared import disk
from orchestrator.shared.events import Event, Written

GENESIS = "0" * 64
_RESERVE_BYTES = 1 << 20


class ChainBroken(Exception):
    """A journal whose lines are not the ones that were written, or not in their order."""


class Journal:
    """Writer of a new journal at `path`; FileExistsError if there is one already.

    With `past`, the whole lines that the journal at `path` holds, it is gone on with: the same chain, the same clock.
    A reserve is kept on the disk, so that a run that fills the disk can still record how it ended. `clean` takes out of
    an event's fields what must not be written down.
    """

    def __init__(
        self, path: Path, clean: Callable[[Any], Any] = lambda fields: fields, past: bytes | None = None
    ) -> None:
        self._path = path
        self._clean = clean
        new = os.O_CREAT | os.O_EXCL if past is None else 0
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | new, 0o600)
        self._reserve = path.with_name(path.name + ".reserve")
        events = read(past or b"")
        self._start = time.monotonic() - (events[-1]["t"] if events else 0.0)
        self._content = hashlib.sha256(past or b"")
        self._size = len(past or b"")
        self._seq = len(events)
        self.head = head(past or b"")
        try:
            self._reserve.write_bytes(b"\0" * _RESERVE_BYTES)
        except OSError:  # a disk that is full already: as if there had been no launch
            self.close()
            if new:
                path.unlink()
            raise
        os.ftruncate(self._fd, self._size)  # the half line that an agent killed while it wrote has left

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, without those between an agent's death and the resumption."""
        return time.monotonic() - self._start

    def append(self, event: Written) -> None:
        """Write one event; OSError if not even the reserve is enough."""
        record = {
            "seq": self._seq,
            "t": round(self.elapsed, 3),
            "wall": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": event["event"],
            **self._clean({key: value for key, value in event.items() if key != "event"}),
            "prev": self.head,
        }
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii")
        self._write(line + b"\n")
        self._content.update(line + b"\n")
        self._size += len(line) + 1
        self._seq += 1
        self.head = hashlib.sha256(line).hexdigest()

    def intact(self) -> bool:
        """Whether the file still holds exactly what was written to it."""
        content = hashlib.sha256()
        try:
            with self._path.open("rb") as f:
                for piece in iter(lambda: f.read(1 << 20), b""):
                    content.update(piece)
        except OSError:
            return False
        return content.digest() == self._content.digest()

    def close(self) -> None:
        self._release_reserve()
        os.close(self._fd)

    def _write(self, line: bytes) -> None:
        try:
            self._write_all(line)
        except OSError as e:
            if e.errno not in disk.FULL:
                raise
            self._release_reserve()
            self._write_all(line)

    def _write_all(self, line: bytes) -> None:
        """Write and sync `line`; what was written of a line that does not fit is taken back."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise

    def _release_reserve(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # given up already, when the disk was full
            self._reserve.unlink()


def read(data: bytes) -> List[Event]:
    """As `read_lines`, of a journal's bytes."""
    return read_lines(io.BytesIO(data))


def read_lines(lines: Iterable[bytes], keep: Callable[[Event, bytes], bool] = lambda event, line: True) -> List[Event]:
    """Those of the events of a journal's lines that are to be kept, the chain of all checked; an unfinished last line
    is not an event yet.

    ChainBroken says which line is wrong and how.
    """
    events: List[Event] = []
    prev = GENESIS
    for number, line in enumerate((line[:-1] for line in lines if line.endswith(b"\n")), start=1):
        event = _event(line, number, prev)
        if keep(event, line):
            events.append(event)
        prev = hashlib.sha256(line).hexdigest()
    return events


def format_of(run_started: Event) -> object:
    """The format that a journal says it has; the first one had no number."""
    return run_started.get("format", 1)


def head(data: bytes) -> str:
    """The hash of the last whole line of `data`, which need only hold that line; GENESIS if there is none."""
    lines = data.split(b"\n")
    return hashlib.sha256(lines[-2]).hexdigest() if len(lines) > 1 else GENESIS


def _event(line: bytes, number: int, prev: str) -> Event:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ChainBroken(f"journal line {number} is not JSON") from e
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise ChainBroken(f"journal line {number} is not an event")
    if event.get("prev") != prev:
        raise ChainBroken(f"journal line {number} does not follow line {number - 1}: a line was changed or removed")
    if event.get("seq") != number - 1:
        raise ChainBroken(f"journal line {number} has the sequence number {event.get('seq')!r}, expected {number - 1}")
    return event
