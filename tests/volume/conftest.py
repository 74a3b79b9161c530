"""A small disk for the laptop, and runs with many files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Disk:
    """A file system of its own, of any size."""

    path: Path

    def become(self, options: str) -> None:
        """Change it while it is used: `size=1m`, `nr_inodes=100`, `ro`, `rw`."""
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A tmpfs, as only root can mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", path], check=True)
