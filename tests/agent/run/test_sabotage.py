"""Planted faults through the whole road: which are noticed, by which test, and what is said of the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.shared import journal
from tests.support.project import Project, local_pod, new_project

CODE = """
def square(x):
    return x * x


def unused():
    return 1
"""
TESTS = """
import os
from pathlib import Path
from code_of import square
def test_begins_as_the_stage_did():
    left = Path(os.environ["NSA_POD_ARTIFACTS"], "left.txt"), Path("left.txt")
    assert not any(path.exists() for path in left)
    for path in left: path.write_text("x")
    os.remove("left.txt")
def test_square(): assert square(3.0) == 9.0
"""
PATCH = (
    "--- a/code_of.py\n+++ b/code_of.py\n@@ -2,3 +2,3 @@\n def square(x):\n-    return x * x\n+    return x + x\n \n"
)


def made(folder: Path, expect: dict[str, Any], *arguments: str) -> Project:
    """A project of one pytest stage that asks for this."""
    pod = {**local_pod(folder), "python": sys.executable} if "-n" in arguments else local_pod(folder)  # it has xdist
    project = new_project(folder, {"local": pod})
    run = ["python", "-m", "pytest", "-q", *arguments, "test_it.py"]
    stage = {"name": "unit", "run": run, "expect": expect}
    runbook = {"name": "r", "environment": {"python": "system"}, "stages": [stage]}
    files = {"code_of.py": CODE, "test_it.py": TESTS, "wrong.patch": PATCH, "runbooks/r.yaml": json.dumps(runbook)}
    project.commit(files)
    return project


@pytest.mark.slow
@pytest.mark.process
def test_each_fault_is_tried_in_the_tree_as_the_stage_began_it(tmp_path: Path) -> None:
    functions = ["code_of:square", "code_of:unused", "code_of:absent"]
    project = made(tmp_path, {"kills": functions, "mutants": [{"patch": "wrong.patch"}]})
    outcome = project.validate("--runbook", "r")
    stage = outcome.stage("unit")
    why = ["code_of:unused was not called", "code_of:absent was not called: its module has nothing of that name"]
    assert stage["kills"] == {"killed": 2, "of": 4, "survivors": functions[1:], "why": why}
    assert (stage["status"], stage["reason"]) == ("invalid", f"{why[0]} (and 1 more)")
    assert "2 of 4 planted faults noticed" in outcome.json["summary"]
    directory = project.root / outcome.json["path"]
    events = journal.read((directory / "journal.jsonl").read_bytes())
    tried = {e["name"]: (e["outcome"], e["test"]) for e in events if e["event"] == "sabotage_ended"}
    noticed = ("killed", "test_it.py::test_square")
    silent = dict.fromkeys(functions[1:], ("not called", None))
    assert tried == {"code_of:square": noticed, **silent, "wrong.patch": noticed}
    assert {path.name for path in (directory / "stages/unit/sabotage").iterdir()} == {"2", "3"}
    report = (directory / "report.md").read_text()
    assert all(f"| unit | {sentence.replace('_', chr(92) + '_')} |" in report for sentence in why)
    without = project.validate("--runbook", "r", "--no-sabotage")
    assert (without.exit_code, without.stage("unit")["kills"]) == (0, {})
    assert "without the sabotage of 1 stage (--no-sabotage)" in without.json["summary"]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_quick_tests_are_asked_first(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    project = made(tmp_path, {"kills": ["code_of:square"]}, *arguments)
    slow = "import time\nfrom code_of import square\ndef test_slow(): time.sleep(1.5); assert square(3.0) == 9.0\n"
    project.commit({"test_it.py": slow + "def test_quick(): assert square(2.0) == 4.0\n"})
    outcome = project.validate("--runbook", "r")
    events = journal.read((project.root / outcome.json["path"] / "journal.jsonl").read_bytes())
    tried = [e["test"] for e in events if e["event"] == "sabotage_ended"]
    assert tried == ["test_it.py::test_quick"]


UNITTEST = """
import unittest
from code_of import square
class Test(unittest.TestCase):
    def test_square(self): self.assertEqual(square(3.0), 9.0)
"""


@pytest.mark.slow
@pytest.mark.process
def test_a_unittest_notices_too(tmp_path: Path) -> None:
    project = made(tmp_path, {"kills": ["code_of:square"]})
    project.commit({"test_it.py": UNITTEST})
    assert project.validate("--runbook", "r").stage("unit")["kills"]["killed"] == 1


@pytest.mark.slow
@pytest.mark.process
def test_a_plugin_of_pytest_is_reached(tmp_path: Path) -> None:
    """pytest imports its plugins by an importer of its own, whose modules no finder is asked for."""
    project = made(tmp_path, {"kills": ["code_of:square"]}, "-p", "code_of")
    outcome = project.validate("--runbook", "r")
    assert outcome.stage("unit")["kills"] == {"killed": 1, "of": 1, "survivors": [], "why": []}


@pytest.mark.slow
@pytest.mark.process
def test_workers_of_xdist_are_reached(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    project = made(tmp_path, {"kills": ["code_of:square"], "mutants": [{"patch": "wrong.patch"}]}, "-n", "2")
    outcome = project.validate("--runbook", "r")
    assert (outcome.exit_code, outcome.stage("unit")["kills"]["killed"]) == (0, 2), outcome.stderr


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("expect", "sentence"),
    [
        ({"kills": ["square"]}, "expected package.module:function"),
        ({"kills": ["a:b", "a:b"]}, "got 'a:b' twice"),
        ({"mutants": [{"patch": "gone.patch"}]}, "beside the runbook, and gone.patch is neither"),
        ({"mutants": [{"patch": "wrong.patch", "tests": "("}]}, "expected a regular expression"),
    ],
)
def test_what_cannot_be_asked_is_said_before_a_pod_is_reached(
    tmp_path: Path, expect: dict[str, Any], sentence: str
) -> None:
    outcome = made(tmp_path, expect).validate("--runbook", "r")
    assert outcome.exit_code == 2 and sentence in outcome.json["error"], outcome.json
