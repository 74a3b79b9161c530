"""What all of the tool's tests share: fixtures, kinds, a home that is nobody's, and a PATH without shims."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

pytest_plugins = ["tests.support.fixtures", "tests.support.kinds", "tests.support.scheduling"]


def pytest_configure() -> None:
    """Take the shims of version managers off the PATH: shell scripts, of which a probe of this machine starts each one.

    With pyenv's seven a `validate` took half as long again.
    """
    kept = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder).name != "shims"]
    if not shutil.which("python3", path=os.pathsep.join(kept)):
        kept.append(str(Path(sys.base_prefix) / "bin"))
    os.environ["PATH"] = os.pathsep.join(kept)


@pytest.fixture(autouse=True)
def at_home(laptop: Path) -> None:
    """No test reads or writes what the user's own pods, or tests beside it, have left."""
