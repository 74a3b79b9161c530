from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.runners.written import _installed_copy

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("installed", "is_copy"), [("def test_it(): ...", True), ("def test_it(): assert 0", False)])
def test_an_installed_copy_of_a_file_is_its_tests_only_if_it_is_the_same(
    tmp_path: Path, installed: str, is_copy: bool
) -> None:
    """A test file that another one imports is the installed one, where pytest imports by importlib."""
    ours, other = tmp_path / "test_a.py", tmp_path / "site" / "test_a.py"
    other.parent.mkdir()
    ours.write_text("def test_it(): ...")
    other.write_text(installed)
    parent: Any = SimpleNamespace(getparent=lambda kind: SimpleNamespace(obj=SimpleNamespace(__file__=str(other))))
    assert _installed_copy(parent, str(ours)) == (str(other) if is_copy else "")
    assert _installed_copy(None, str(ours)) == ""
