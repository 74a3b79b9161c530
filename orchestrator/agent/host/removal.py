"""Removes what a stage left: whatever its permissions, its names, its depth."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, List


def remove(path: str) -> int:
    """Remove a file or a folder, links not followed; how many files that were. What cannot be removed stays."""
    if os.path.islink(path) or not os.path.isdir(path):
        return int(_removed(path))
    folders: List[str] = [path]
    count = 0
    for folder in folders:
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                count += _removed(entry.path)
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return count


def _removed(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        _open_up(os.path.dirname(path))
        with contextlib.suppress(OSError):
            os.unlink(path)
    return not os.path.lexists(path)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    _open_up(folder)
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        yield from list(found)


def _open_up(folder: str) -> None:
    """A folder that is not writable keeps what is in it."""
    with contextlib.suppress(OSError):
        if os.stat(folder).st_mode & 0o700 != 0o700:
            os.chmod(folder, 0o700)
