"""Who uses an environment: a shared kernel lock, so that a dead run's falls away; nobody moves what is taken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from orchestrator.shared.locks import A_MOMENT_S, is_held, locked


@contextlib.contextmanager
def taken(root: Path | None) -> Iterator[None]:
    """Use the environment at `root` (if there is one) until the end of the block, or of the process.

    Waits for the moment that somebody needs to put a rebuilt one in its place.
    """
    with contextlib.ExitStack() as stack:
        if root is not None and root.parent.is_dir():
            stack.enter_context(locked(file_of(root), shared=True))
        yield


@contextlib.contextmanager
def alone(root: Path) -> Iterator[bool]:
    """Whether nobody uses the environment at `root`; if so, nobody begins to before the end of the block."""
    with locked(file_of(root), A_MOMENT_S) as held:
        yield held


def is_taken(root: Path) -> bool:
    """Whether somebody uses the environment at `root` now."""
    return file_of(root).exists() and is_held(file_of(root))


def file_of(root: Path) -> Path:
    """The lock: beside the environment, since that may be replaced."""
    return root.parent / f".{root.name}.lease"
