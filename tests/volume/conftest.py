"""A small disk for the laptop, and runs with many files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk import Disk


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
