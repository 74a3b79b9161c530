"""A small disk."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Disk:
    """A file system of its own, of any size."""

    path: Path

    def become(self, options: str) -> None:
        """Change it while it is used: `size=1m`, `nr_inodes=100`, `ro`, `rw`."""
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)
