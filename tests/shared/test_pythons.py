from __future__ import annotations

import pytest

from orchestrator.shared.pythons import is_python, version_meant

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "name",
    "python python3 python3.12 /usr/bin/python3.13t pypy pypy3 bin/pypy3.10 {python} pythonw.exe".split(),
)
def test_names_of_interpreters(name: str) -> None:
    assert is_python(name)


@pytest.mark.parametrize("name", ["", "python3-config", "pythonize", "python.py", "ipython", "pytest"])
def test_names_of_what_is_none(name: str) -> None:
    assert not is_python(name)


@pytest.mark.parametrize(
    ("word", "version"),
    [
        ("python", ""),
        ("{python}", ""),
        ("python3.12", "3.12"),
        ("python3.13t", None),
        ("pypy3", None),
        ("/bin/python", None),
    ],
)
def test_what_means_the_environments(word: str, version: str | None) -> None:
    assert version_meant(word) == version
