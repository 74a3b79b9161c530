"""What a laptop is about to use, or is bringing home: nobody removes it.

<workdir>/gate            a kernel lock, shared by who takes hold of something, held alone by who removes things
<workdir>/holds/<token>   one laptop's: in each line a path below the workdir, such as envs/<key>

A launch makes the run of what was held for it, which holds the pod from then on. What a laptop that was killed has
held is free LASTS_S after its last word: such a file bears the pod's uptime, for the time of day can be set.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Set

from orchestrator.shared.files import write_atomically
from orchestrator.shared.locks import opened, take

LASTS_S = 1800.0
"""Twice as long as a laptop goes on trying to reach a pod that it has lost."""
_FOLDER = "holds"


class Hold:
    """One laptop's hold, by the path of its file; empty: who asks holds nothing."""

    def __init__(self, path: str = "") -> None:
        self._path = Path(path) if path else None

    def take(self, *items: str) -> None:
        """Hold `items` too, whether or not they are there: look for them afterwards. Without any: say that all of it is
        still held.

        A disk that is full refuses that, and nothing else shall fail for it.
        """
        if self._path is None or not (items or self._path.exists()):
            return
        with contextlib.suppress(OSError), gate(self._path.parent.parent, shared=True):
            self._write(_read(self._path) | set(items))

    def exchange(self, item: str) -> None:
        """Hold only `item` from now on."""
        if self._path is not None:
            with contextlib.suppress(OSError), gate(self._path.parent.parent, shared=True):
                self._write({item})

    def _write(self, items: Set[str]) -> None:
        assert self._path is not None
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self._path, "".join(f"{item}\n" for item in sorted(items)))
        os.utime(self._path, (time.monotonic(), time.monotonic()))


@contextlib.contextmanager
def gate(workdir: Path, patience: float | None = None, *, shared: bool) -> Iterator[bool]:
    """Whether one is through, after at most `patience` seconds (None: however long it takes); until the block's end."""
    fd = _open(workdir)
    try:
        yield take(fd, patience, shared=shared)
    finally:
        os.close(fd)


def held(workdir: Path) -> Set[str]:
    """All that laptops hold now."""
    living = (path for path in (workdir / _FOLDER).glob("*") if not is_over(path))
    return set().union(*map(_read, living))


def is_over(path: Path) -> bool:
    """Whether nobody has renewed the hold for so long that it is none any more; with a boot the time begins anew."""
    try:
        renewed, now = path.stat().st_mtime, time.monotonic()
    except FileNotFoundError:
        return True
    return now - (renewed if renewed <= now else 0.0) > LASTS_S


def _open(workdir: Path) -> int:
    """The gate; the workdir itself stands in for it where not even an empty file can be made."""
    workdir.mkdir(parents=True, exist_ok=True)
    try:
        return opened(workdir / "gate")
    except OSError:
        return os.open(workdir, os.O_RDONLY | os.O_CLOEXEC)


def _read(path: Path) -> Set[str]:
    try:
        return set(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except FileNotFoundError:
        return set()
