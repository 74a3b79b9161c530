"""How a repository without tests for pytest runs those that it has: with ctest, make or bats, as lines of a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from orchestrator.config.read import text_of

_CTEST = re.compile(r"^\s*(?:enable_testing|add_test)\s*\(|^\s*include\s*\(\s*CTest\s*\)", re.MULTILINE | re.IGNORECASE)
_TARGET = re.compile(r"^(tests?|check)\s*:(?!=)", re.MULTILINE)
_BUILT = ("cmake -S . -B build", "cmake --build build --parallel", "ctest --test-dir build --output-on-failure")


def lines(folder: Path, files: Iterable[str]) -> list[str]:
    """Of the project in `folder`, whose `files` are relative to it; none where nothing of the kind is there."""
    if _CTEST.search(text_of(folder / "CMakeLists.txt")):
        return [*_BUILT]
    target = _TARGET.search(text_of(folder / "Makefile"))
    if target:
        return [f"make {target[1]}"]
    folders = {PurePosixPath(file).parent for file in files if file.endswith(".bats")}
    top = min(folders, key=lambda folder: (len(folder.parts), folder), default=None)
    return [f"bats {shlex.quote(str(top))}"] if top is not None else []
