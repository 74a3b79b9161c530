"""Small things done to files in more than one place."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.agent.files import digest_of


def sha256(path: Path) -> str:
    """The file's SHA-256 in hex."""
    with path.open("rb") as f:
        return digest_of(f)[0]


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write aside and rename, so that a reader or a crash sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
            f.flush()
            os.fsync(f.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
