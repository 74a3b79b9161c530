"""Data that an earlier run on this pod has left, and a stage reads: neither the commit's nor made here."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Container, Iterable, Iterator, Mapping, Tuple

from orchestrator.shared.text import plain

DOWNLOADED = ("huggingface", "torch/hub", "uv", "pip")
"""Folders where programs keep what they have fetched, in the user's own."""
_CACHES = ("CACHE", "_HOME")  # in the names of variables: what is below their folders is a tool's own
_OF_USER = "XDG_"  # but of these, which lead to the user's own
_SYSTEM = ("/run/", "/var/cache/", "/var/lib/", "/var/log/", "/var/run/")  # beside what no stage's report names


def left_by_others(
    read: Iterable[str], named: Container[str], run_dir: Path, env: Mapping[str, str]
) -> Iterator[Tuple[str, str]]:
    """With a doubt on each: the files that were last changed while another run on this pod was under way; not those
    that tools keep for themselves, in hidden folders and caches, of which code of the tree has not `named` the file.
    """
    runs = list(_others(run_dir))
    variables = [name for name in env if any(part in name for part in _CACHES) and env[name].rstrip("/")]
    caches = tuple(f"{env[name].rstrip('/')}/" for name in variables)
    of_tools = tuple(f"{env[name].rstrip('/')}/" for name in variables if not name.startswith(_OF_USER))
    for file in read if runs else ():
        changed = _changed(file)
        by = next((name for name, begin, end in runs if begin <= changed <= end), None)
        if by is None or file.startswith(_SYSTEM) or run_dir.parent.parent in Path(file).parents:
            continue
        if file in named:
            is_kept = file.startswith(of_tools) or any(f"/{name}/" in file for name in DOWNLOADED)
        else:
            is_kept = file.startswith(caches) or "/." in file
        if not is_kept:
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
