"""A small disk for the laptop, and runs with many files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk import Disk, mounted, why_not


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A tmpfs, as only root can mount one."""
    if missing := why_not():
        pytest.skip(missing)
    with mounted(tmp_path / "disk", "size=64m,mode=700") as made:
        yield made
