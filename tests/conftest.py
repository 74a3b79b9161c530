"""What all of the tool's tests share: fixtures, kinds, and a PATH without shims."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

pytest_plugins = ["tests.support.fixtures", "tests.support.kinds", "tests.support.scheduling"]


def pytest_configure() -> None:
    """Take the shims of version managers off the PATH: shell scripts, of which a probe of this machine starts each one.

    With pyenv's seven a `validate` took half as long again.
    """
    kept = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder).name != "shims"]
    if not shutil.which("python3", path=os.pathsep.join(kept)):
        kept.append(str(Path(sys.base_prefix) / "bin"))
    os.environ["PATH"] = os.pathsep.join(kept)
