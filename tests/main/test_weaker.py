"""Tests that a commit has made weaker under their ids, by the whole road; and one that is only written otherwise."""

from __future__ import annotations

from tests.support.project import Project

RUNBOOK = """\
name: r
environment: {python: system}
stages:
  - name: t
    run: [python, -m, pytest, -q, test_it.py]
"""
TESTS = """\
from math import isclose
from pytest import approx
TOL = {tol}
DATA = [float(n) for n in range(64)]
def worst(a, b): return max(abs(x - y) for x, y in zip(a, b))
def test_size(): assert DATA{part} == approx(DATA{part}, abs=1e-3)
def test_tolerance(): assert worst(DATA, DATA) < TOL
def test_same(): assert DATA == approx(DATA, abs=1e-3)
def test_otherwise(): {otherwise}
"""
BEFORE = {"tol": "1e-3", "part": "", "otherwise": "assert DATA == approx(DATA, abs=1e-3)"}
AFTER = {
    "tol": "0.5",
    "part": "[:4]",
    "otherwise": "assert all(isclose(x, y, abs_tol=1e-3) for x, y in zip(DATA, DATA))",
}


def test_what_a_commit_has_made_weaker_is_said(project: Project) -> None:
    first = project.commit({"runbooks/r.yaml": RUNBOOK, "test_it.py": TESTS.format(**BEFORE)})
    assert project.validate("--runbook", "r").json["notes"] == []
    project.commit({"test_it.py": TESTS.format(**AFTER)})
    result = project.validate("--runbook", "r").json
    then = f"the last passed run of this runbook on pod local (commit {first[:7]})"
    assert (result["verdict"], result["notes"]) == (
        "passed",
        [
            f"tests of t compared fewer elements than in {then}: test_it.py::test_size (4, not 64)",
            f"tests of t compared with a larger tolerance than in {then}: test_it.py::test_tolerance (0.5, not 0.001)",
        ],
    )
