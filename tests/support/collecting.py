"""The items that a session collects, in the test's own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def collected(folder: Path, source: str, *arguments: str, conftest: str = "") -> list[Any]:
    """Of a file of tests in `folder`; others there are named by the arguments."""
    items: list[Any] = []

    class Looks:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            items.extend(session.items)

    file = folder / f"test_{folder.name}.py"  # a module is imported once
    file.write_text(source)
    (folder / "conftest.py").write_text(conftest)
    (folder / "x.ini").write_text("[pytest]\n")
    options = ["-q", "--collect-only", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:xdist"]
    where = ["-c", str(folder / "x.ini"), "--rootdir", str(folder)]
    assert pytest.main([*options, *where, str(file), *arguments], plugins=[Looks()]) == 0
    return items
