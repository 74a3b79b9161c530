"""Small things done to files in more than one place."""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from orchestrator.errors import DiskError, InputError
from orchestrator.shared import disk, locks
from orchestrator.shared.files import digest_of

# What this process has hashed: identity of the file -> digest. A run with many files is read once, not three times.
_hashed: dict[bytes, bytes] = {}


class Writer(Protocol):
    """What bytes can be written to."""

    def write(self, data: bytes, /) -> object: ...


def sha256(path: str | Path) -> str:
    """The file's SHA-256 in hex; a file that this process hashed, and that was not touched since, is not read again."""
    identity = _identity(os.stat(path))
    known = _hashed.get(identity)
    if known is None:
        with open(path, "rb") as f:
            known = bytes.fromhex(digest_of(f)[0])
        _hashed[identity] = known
    return known.hex()


def is_regular(path: str, size: int | None = None) -> bool:
    """Whether a regular file (of `size` bytes) is at `path`: no link, nothing else."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):  # a name that cannot be one
        return False
    return stat.S_ISREG(found.st_mode) and size in (None, found.st_size)


def remember_sha256(path: str, digest: str) -> None:
    """Spare `sha256` the reading of a file that was hashed as it was written."""
    _hashed[_identity(os.stat(path))] = bytes.fromhex(digest)


def _identity(s: os.stat_result) -> bytes:
    return struct.pack("5Q", s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)


def write_atomically(path: Path, data: bytes | str | Iterable[str]) -> None:
    """A reader, or a crash, sees the old content or the new. DiskError if it cannot be written."""
    with aside(path) as beside, beside.open("wb") as f:
        for piece in (data,) if isinstance(data, (bytes, str)) else data:
            f.write(piece.encode() if isinstance(piece, str) else piece)
        f.flush()
        if beside is not path:
            os.fsync(f.fileno())


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Where to write what is renamed to `path` then; `path` itself where that is a device or a pipe, which a file must
    not take the place of. DiskError if it cannot be written.
    """
    with on_this_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            yield path
            return
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            yield beside
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def require_room(folder: Path, what: str) -> None:
    """InputError where nothing can be kept in the folder, which is better said before anything was run."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise InputError(f"{folder}: expected a folder for {what}, and {there} is none")
    try:
        tempfile.TemporaryDirectory(dir=there).cleanup()  # what a mode says is not all: file systems can be read-only
    except OSError as e:
        said = f"{folder}: expected a folder for {what}, and {there} cannot be written to: {e.strerror}"
        raise InputError(said) from e


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the file `path` against every other process of this machine; waits for it."""
    with ExitStack() as stack:
        with on_this_disk(path):
            stack.enter_context(locks.locked(path))
        yield


@contextmanager
def on_this_disk(path: Path) -> Iterator[None]:
    """Say what this machine's disk refuses, while something is written to `path`, as a DiskError."""
    try:
        yield
    except OSError as e:
        if e.errno in disk.FULL:
            free = disk.room(e, str(path.parent))
            raise DiskError(f"this machine's disk is full ({free}, not enough), and {path} cannot be written") from e
        raise DiskError(f"{path} cannot be written: {e.strerror or e}") from e
