"""A stage's TMPDIR. Programs make sockets there, and a Unix socket's path has 107 bytes (macOS: 103), so that in a deep
workdir it is named by a link in /tmp. What is written lies in the workdir all the same, on the disk chosen for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Iterator

from orchestrator.agent.layout import Layout

_LONGEST = 48  # multiprocessing's own names of sockets take 32 more, others' more than that


@contextlib.contextmanager
def place(places: Layout, number: int) -> Iterator[Path]:
    """The path of the stage's TMPDIR, which is yet to be made; nothing of it is left afterwards."""
    folder = named = places.tmp(number)
    with contextlib.suppress(OSError):  # as where there is no /tmp, or another user has taken the name
        if len(os.fsencode(folder)) > _LONGEST and _is_kept(places.short.parent):
            folder.parent.mkdir(exist_ok=True)
            forget(places)
            places.short.symlink_to(folder.parent)
            named = places.short / folder.name
    try:
        yield named
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        forget(places)


def _is_kept(shared: Path) -> bool:
    """Whether nobody but root and their owner can put others in the place of its links."""
    status = shared.stat()
    return status.st_uid == 0 and bool(status.st_mode & stat.S_ISVTX)


def forget(places: Layout) -> None:
    """Take the link away, be it of an earlier run that was killed: only one at a time has the workdir."""
    with contextlib.suppress(OSError):
        places.short.unlink()
