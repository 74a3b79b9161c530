"""Who uses an environment: a shared kernel lock, so that a dead run's falls away; nobody moves what is taken."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def taken(root: Path | None) -> Iterator[None]:
    """Use the environment at `root` (if there is one) until the end of the block, or of the process.

    Waits for the moment that somebody needs to put a rebuilt one in its place.
    """
    with contextlib.ExitStack() as stack:
        if root is not None and root.parent.is_dir():
            fd = _open(root)
            stack.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def alone(root: Path) -> Iterator[bool]:
    """Whether nobody uses the environment at `root`; if so, nobody begins to before the end of the block."""
    fd = _open(root)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(fd)


def is_taken(root: Path) -> bool:
    """Whether somebody uses the environment at `root` now."""
    with alone(root) as free:
        return not free


def _open(root: Path) -> int:
    """Beside the environment, since that may be replaced."""
    return os.open(str(root.parent / f".{root.name}.lease"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
