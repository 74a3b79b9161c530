"""A stage's TMPDIR. Programs make sockets there, and a Unix socket's path has 107 bytes (macOS: 103), so that in a deep
workdir it is named by a link in /tmp. What is written lies in the workdir all the same, on the disk chosen for it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import Iterator

from orchestrator.agent.host.removal import remove
from orchestrator.agent.layout import PREFIX, Layout

_ABANDONED_S = 86400.0
_LONGEST = 48  # multiprocessing's own names of sockets take 32 more, others' more than that


@contextlib.contextmanager
def place(places: Layout, number: int) -> Iterator[Path]:
    """The path of the stage's TMPDIR, which is yet to be made; nothing of it is left afterwards."""
    folder = named = places.tmp(number)
    link = places.short
    with contextlib.suppress(OSError):  # as where there is no /tmp, or another user has taken the name
        if len(os.fsencode(folder)) > _LONGEST and _is_kept(link.parent):
            folder.parent.mkdir(exist_ok=True)
            forget(link)
            link.symlink_to(folder.parent)
            named = link / folder.name
            _forget_abandoned(link.parent)
    try:
        yield named
    finally:
        remove(str(folder))  # also what the stage has put in its place
        forget(link)


def _forget_abandoned(shared: Path) -> None:
    """Take away the links of workdirs that are there no more; a new one may be another container's, and lead there."""
    for link in shared.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another run may just have taken it away
            if not os.path.exists(link) and time.time() - link.lstat().st_mtime > _ABANDONED_S:
                link.unlink()


def _is_kept(shared: Path) -> bool:
    """Whether nobody but root and their owner can put others in the place of its links."""
    status = shared.stat()
    return status.st_uid == 0 and bool(status.st_mode & stat.S_ISVTX)


def forget(link: Path) -> None:
    """Take it away, be it of an earlier run that was killed: only one at a time has the workdir."""
    with contextlib.suppress(OSError):
        link.unlink()
