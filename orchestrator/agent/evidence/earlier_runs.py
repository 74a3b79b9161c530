"""Data that an earlier run on this pod has left, and a stage reads: neither the commit's nor made here."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Iterable, Iterator, Mapping, Tuple

from orchestrator.shared.text import plain

_CACHES = ("CACHE", "_HOME")  # in the names of variables: what is below their folders is a tool's own
_SYSTEM = ("/run/", "/var/cache/", "/var/lib/", "/var/log/", "/var/run/")  # beside what no stage's report names


def left_by_others(read: Iterable[str], run_dir: Path, env: Mapping[str, str]) -> Iterator[Tuple[str, str]]:
    """With a doubt on each: the files that were last changed while another run on this pod was under way; not those
    that tools keep for themselves, in hidden folders and named caches.
    """
    runs = list(_others(run_dir))
    folders = (value.rstrip("/") for name, value in env.items() if any(part in name for part in _CACHES))
    kept = (*(f"{folder}/" for folder in folders if folder), *_SYSTEM)
    for file in read if runs else ():
        changed = _changed(file)
        by = next((name for name, begin, end in runs if begin <= changed <= end), None)
        if by and not (file.startswith(kept) or "/." in file or run_dir.parent.parent in Path(file).parents):
            yield file, f"it reads {plain(file)}, which the run {plain(by)} has left, and nothing of this one has made"


def _others(run_dir: Path) -> Iterator[Tuple[str, int, int]]:
    """The other runs, with the times of their beginning and their last word."""
    for run in run_dir.parent.iterdir():
        with contextlib.suppress(OSError):
            begin, end = (os.stat(run / name).st_mtime_ns for name in ("plan.json", "journal.jsonl"))
            if run != run_dir:
                yield run.name, begin, end


def _changed(file: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(file)
        return status.st_ctime_ns if stat.S_ISREG(status.st_mode) and status.st_size else 0  # a lock holds nothing
    return 0
