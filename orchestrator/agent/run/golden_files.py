"""Files outside of the run that a stage's tests read or write, and make anew where there are none: golden files, which
may hold what the code itself has once returned. While the tests run again they are not there, as on a fresh pod: faulty
code writes its own, with which it agrees.

What lies below a folder that a variable names (HOME, XDG_CACHE_HOME) is left alone: the variable names another folder,
of links to all that is in the first, but for these files. Others are moved aside for the while, if this stage has
written them.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import stat
from itertools import islice
from pathlib import Path
from typing import Collection, Dict, Iterable, Iterator, List, Mapping, Set

from orchestrator.agent.evidence.earlier_runs import DOWNLOADED
from orchestrator.shared.files import walk

_ASIDE = ".nsa-pod-aside"
_MOST_LOOKED_AT = 200_000
_OF_USER = ("HOME", "XDG_")  # variables that name folders where programs keep what is their own


class GoldenFiles:
    """Of the `files` those that are made anew, once that is known; what was written after `since`, in nanoseconds, is
    the stage's own.
    """

    def __init__(self, files: Iterable[str], since: int) -> None:
        self.files = {file for file in files if os.path.isfile(file)}
        self._since = since
        self._made: Set[str] = set()
        self._changed: Set[str] = set()

    @contextlib.contextmanager
    def absent(self, variables: Mapping[str, str], room: Path, *, faulty: bool) -> Iterator[Dict[str, str]]:
        """Have them be absent for who gets the variables that this yields; folders of links are made in `room`."""
        named = {name: os.path.normpath(path) for name, path in variables.items() if self._are_below(path)}
        tops = sorted(path for path in set(named.values()) if not _is_below(path, named.values()))
        copies = {top: str(room / str(number)) for number, top in enumerate(tops)}
        for top, copy in copies.items():
            _link(top, copy, [os.path.relpath(file, top) for file in self.files if _is_below(file, [top])])
        places = {file: _led(file, copies) for file in self.files}
        moved = [file for file, place in places.items() if place == file and self._is_own(file)]
        try:
            for file in moved:
                os.rename(file, file + _ASIDE)
            yield {name: _led(path, copies) for name, path in named.items()}
        finally:
            away = {file: place for file, place in places.items() if place != file or file in moved}
            self._made = {file for file, place in away.items() if os.path.isfile(place)}
            if faulty:
                made_aside = self._made.intersection(moved)
                self._changed |= {file for file in made_aside if not filecmp.cmp(file, file + _ASIDE, shallow=False)}
            for file in moved:
                with contextlib.suppress(FileNotFoundError):
                    os.replace(file + _ASIDE, file)

    def keep_made(self) -> None:
        """From now on it is about those that were made anew the last time."""
        self.files = self._made

    def remove(self) -> None:
        """Take away those of the stage's own that faulty code has made otherwise: the next run begins as this one."""
        for file in self._changed:
            with contextlib.suppress(OSError):
                os.unlink(file)

    def _are_below(self, path: str) -> bool:
        return os.path.isabs(path) and any(_is_below(file, [os.path.normpath(path)]) for file in self.files)

    def _is_own(self, file: str) -> bool:
        status = os.lstat(file)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        return is_ours and status.st_ctime_ns >= self._since


def written(variables: Mapping[str, str], since: int, spared: Collection[str]) -> Iterator[str]:
    """The files in the user's folders that were written after `since`, in nanoseconds: what a library in another
    language has read and written (safetensors, HDF5) is seen in no Python. Not those in the `spared` folders, nor what
    was fetched from elsewhere.
    """
    named = {path for name, path in variables.items() if name.startswith(_OF_USER) and path.strip("/")}
    caches = [*named, *(os.path.join(path, ".cache") for path in named)]
    away = {*spared, *(os.path.join(path, kept) for path in caches for kept in DOWNLOADED)}
    for top in filter(os.path.isabs, named):
        entries = walk(Path(top), lambda folder, top=top: os.path.join(top, folder) in away)  # type: ignore[misc]
        for _, entry in islice(entries, _MOST_LOOKED_AT):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_ctime_ns >= since:
                    yield entry.path


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(folder.rstrip(os.sep) + os.sep) and path != folder for folder in folders)


def _led(path: str, copies: Mapping[str, str]) -> str:
    """Where the path leads once a folder around it is its copy."""
    top = next((top for top in copies if path == top or _is_below(path, [top])), None)
    return path if top is None else os.path.normpath(os.path.join(copies[top], os.path.relpath(path, top)))


def _link(folder: str, copy: str, without: Iterable[str]) -> None:
    """Make `copy` a folder of links to what is in `folder`, but for the paths `without`."""
    inside: Dict[str, List[str]] = {}
    for path in without:
        name, _, rest = path.partition(os.sep)
        inside.setdefault(name, []).append(rest)
    os.makedirs(copy)
    for name in os.listdir(folder):
        if name not in inside:
            os.symlink(os.path.join(folder, name), os.path.join(copy, name))
        elif "" not in inside[name]:
            _link(os.path.join(folder, name), os.path.join(copy, name), inside[name])
