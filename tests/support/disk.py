"""A small disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Disk:
    """A file system of its own, of any size."""

    path: Path

    def become(self, options: str) -> None:
        """Change it while it is used: `size=1m`, `nr_inodes=100`, `ro`, `rw`."""
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)

    @contextmanager
    def full(self) -> Iterator[None]:
        """While not one byte more can be written to it."""
        fill = self.path / "fill"
        try:
            with fill.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(1 << 16)):
                        pass
                except OSError:
                    pass  # full
            yield
        finally:
            fill.unlink(missing_ok=True)


def why_not() -> str | None:
    """Why none can be made here."""
    return None if os.geteuid() == 0 else "only root mounts file systems"


@contextmanager
def mounted(path: Path, options: str) -> Iterator[Disk]:
    """A tmpfs at `path`; OSError if none can be mounted."""
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", path], check=True)
