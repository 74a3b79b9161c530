"""What a disk that takes no more is called, and how much room it has."""

from __future__ import annotations

import errno
import os
import tempfile

from orchestrator.shared.text import size

FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE_BYTES = 1 << 16  # more than what is left of a block


def told(e: OSError, place: object) -> str:
    """The error, with how much room there is at `place` where it is that there is none."""
    return f"{e} ({room(e, str(place))})" if e.errno in FULL else str(e)


def room(e: OSError, place: str) -> str:
    """What is free at `place`, or at the nearest folder above it that exists, by its disk, which knows of no quota."""
    while not os.path.exists(place):
        place = os.path.dirname(place)
    found = os.statvfs(place)
    free, all_bytes = (size(blocks * found.f_frsize) for blocks in (found.f_bavail, found.f_blocks))
    # Some file systems make inodes as they need them and count none.
    inodes = f", {found.f_favail} of {found.f_files} inodes" if found.f_files else ""
    quota = "the quota is used up, though " if e.errno == errno.EDQUOT else ""
    return f"{quota}{free} of {all_bytes}{inodes} are free"


def refusal(folder: object) -> str:
    """Why a small file cannot be written to `folder` now; empty if it can."""
    try:
        with tempfile.TemporaryFile(dir=str(folder)) as f:
            f.write(bytes(_PROBE_BYTES))
            f.flush()
    except OSError as e:
        return told(OSError(e.errno, e.strerror), folder)
    return ""
