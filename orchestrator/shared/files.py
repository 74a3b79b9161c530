"""Files that a stage may have written: opened without following links, listed, hashed and copied."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Set

from orchestrator.shared.stage_record import File

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 16  # of this size, memory is reused: many small files cost no more than they must
_LINK_ERRORS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)


_MOST_PARTS = 32
_LONGEST_PART = 255  # bytes: what file systems take


class Refused(Exception):
    """Not a regular file inside its directory; the message is a clause that follows the file's name."""


def clause(error: Exception) -> str:
    """What is wrong with a file, as a clause that follows its name."""
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def stays_away(path: str) -> str | None:
    """Why no file of this path in a run's directory comes home, None if it does."""
    if not path.isprintable():
        return "expected a path that can be shown, without control characters"
    parts = path.split("/")
    if len(parts) > _MOST_PARTS or any(len(part.encode()) > _LONGEST_PART for part in parts):
        return f"expected at most {_MOST_PARTS} folders deep, and {_LONGEST_PART} bytes in each name"
    return None


def folders_of(files: Iterable[str]) -> Set[str]:
    """Every directory that holds one of the files, at any depth."""
    found: Set[str] = set()
    for path in files:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def both_ways(folders: Iterable[str]) -> list[str]:
    """As they are named, and where that leads."""
    return list(dict.fromkeys(path for folder in folders for path in (folder, os.path.realpath(folder))))


def read_json(path: Path) -> dict[str, Any]:
    """The file's object; empty if there is none that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def open_inside(root: Path, relative: str) -> Iterator[BinaryIO]:
    """Open the regular file `root/relative` for reading; no part of `relative` may be a link.

    FileNotFoundError if it does not exist; Refused for links, devices, pipes, directories and paths that lead out.
    """
    with os.fdopen(_descend(root, relative), "rb") as f:
        yield f


def text_inside(root: Path, relative: str, most: int) -> str:
    """The first `most` bytes of such a file as text; blank where it cannot be read."""
    try:
        with open_inside(root, relative) as f:
            return f.read(most).decode("utf-8", "replace")
    except (OSError, Refused):
        return ""


def _descend(root: Path, relative: str) -> int:
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if not parts or relative.startswith("/") or ".." in parts or "\0" in relative:
        raise Refused("would lie outside its directory")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _READ | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        fd = os.open(parts[-1], _READ, dir_fd=folder)
    except OSError as e:
        if e.errno in _LINK_ERRORS:
            raise Refused("is a symbolic link or below one") from e
        if e.errno == errno.ENXIO:
            raise Refused("is not a regular file") from e
        raise
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Refused("is not a regular file")
    return fd


def describe(root: Path, relative: str, most: int = sys.maxsize) -> File:
    """The file `root/relative`; what somebody appends meanwhile does not count.

    Errors as in `open_inside`; Refused if it has more than `most` bytes.
    """
    with open_inside(root, relative) as f:
        size = os.fstat(f.fileno()).st_size
        if size > most:
            raise Refused(f"has {size} bytes: too much to be kept")
        digest, size = digest_of(f, size)
    return {"path": relative, "bytes": size, "sha256": digest}


def sha256(path: Path) -> str:
    """The file's SHA-256 in hex."""
    with path.open("rb") as f:
        return digest_of(f)[0]


def digest_of(f: BinaryIO, most: int = sys.maxsize) -> tuple[str, int]:
    """SHA-256 in hex and size of what is left to read in `f`, but for what is beyond `most` bytes."""
    digest = hashlib.sha256()
    left = most
    while piece := f.read(min(_PIECE, left)):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest(), most - left


def walk(root: Path, skip: Callable[[str], bool] = lambda folder: False) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below `root` that is no directory, with its path relative to `root`; links are not followed.

    `skip` says which folders (by relative path) are passed over. Folders that cannot be read count as empty: what was
    expected in them is then missing, which is for the caller to notice.
    """
    folders = [(str(root), "")]
    while folders:
        folder, prefix = folders.pop()
        try:
            entries = os.scandir(folder)
        except OSError:
            continue
        with entries:
            for entry in entries:
                relative = prefix + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    yield relative, entry
                elif not skip(relative):
                    folders.append((entry.path, relative + "/"))


class Identity(NamedTuple):
    """What changes when a file is written or replaced; times in nanoseconds."""

    mode: int
    inode: int
    size: int
    modified: int
    changed: int


def snapshot(root: Path, *, folders: bool = False) -> dict[str, Identity]:
    """All files below `root` by relative path; with `folders`, these too, by their whole path."""
    found = {name: identity(entry.stat(follow_symlinks=False)) for name, entry in walk(root)}
    if folders:
        found.update((folder, identity(os.lstat(folder))) for folder, _, _ in os.walk(root))
    return found


def identity(s: os.stat_result) -> Identity:
    return Identity(s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)


def copy_inside(source_root: Path, source: str, target_root: Path, target: str) -> None:
    """Copy the regular file `source` to the new file `target`; FileExistsError if there is one."""
    path = target_root / target
    with open_inside(source_root, source) as f:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as out:
            shutil.copyfileobj(f, out, 1 << 20)


def write_atomically(path: Path, text: str) -> None:
    """Write aside and rename, so that a reader sees the old content or the new."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
