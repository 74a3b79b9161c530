from __future__ import annotations

import pytest

from orchestrator.agent.evidence.code_files import is_code

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("path", ["a.py", "pkg/core.pyx", "pyproject.toml", "sub/setup.cfg", "tox.ini", "Makefile"])
def test_what_is_code_or_steers_what_runs(path: str) -> None:
    assert is_code(path, "100644")


@pytest.mark.parametrize("path", ["tests/examples/example.toml", "data.ini", "values.cfg", "a.json", "LICENSE"])
def test_what_is_data_of_the_programs_that_read_it(path: str) -> None:
    assert not is_code(path, "100644")
