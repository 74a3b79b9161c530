"""Failures explain themselves: in the terminal, report.md and result.json of a run, and while it goes on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.project import Outcome, Project, local_pod, new_project

pytestmark = [pytest.mark.process, pytest.mark.slow]

RUNBOOK = """\
name: toy
environment: {python: system}
env: {PYTHONPATH: ".", API_TOKEN: {from_env: TOY_TOKEN}}
stages:
  - {name: five, run: [python, -m, pytest, -q, tests], env: {MODE: fast}}
  - {name: broken, run: [python, -m, pytest, -q, broken]}
  - {name: bench, run: [python, bench.py], expect: {artifacts: [{path: bench.txt, from: stdout}]}}
  - {name: uses_x, run: [python, -c, import core.x], expect: {artifacts: [{path: x.txt, from: stdout}]}}
  - {name: no_command, shell: "frobnicate --now", expect: {artifacts: [{path: no.txt, from: stdout}]}}
  - {name: crashes, run: [python, -m, pytest, -q, crashes]}
  - {name: shell, shell: "python -m pytest -q inner", expect: {tests: {min_passed: 1}}}
  - {name: table, run: [python, table.py],
     expect: {artifacts: [{path: bench.csv, kind: csv, checks: [{column: cmp_pct, max: 100}]}]}}
  - {name: gone, run: [python, gone.py], expect: {artifacts: [{path: gone.txt, from: stdout}]}}
  - {name: after, needs: [bench], run: [python, table.py], expect: {artifacts: [{path: a.txt, from: stdout}]}}
  - {name: after_that, needs: [after], run: [python, table.py], expect: {artifacts: [{path: b.txt, from: stdout}]}}
"""
FIVE = """\
import pytest
from core.ok import double, same

def test_double():
    assert double(2) == 4

def test_helper():
    same(1, 2)

def test_raises():
    with pytest.raises(ValueError):
        double(1)

def test_key():
    {"a": 1}["missing"]

def test_fixture(no_such_fixture):
    pass

@pytest.mark.parametrize("i", range(12))
def test_gpu(i):
    pytest.skip("needs a CUDA GPU")
"""
FILES = {
    "runbooks/toy.yaml": RUNBOOK,
    "core/ok.py": "def double(x):\n    return x * 3\n\ndef same(a, b):\n    assert a == b, 'they differ'\n",
    "core/x.py": "A = 1\n" * 177 + "def broken(:\n",
    "tests/test_five.py": FIVE,
    **{f"broken/test_b{n}.py": "import core.x\n\ndef test_it():\n    assert core.x.A\n" for n in range(8)},
    "bench.py": "def run(n):\n    print('at', n)\n    raise ValueError(f'shape {n} is odd')\nrun(3)\n",
    "crashes/test_crash.py": "import os\ndef test_fine(): assert 1\ndef test_boom(): os.kill(os.getpid(), 11)\n",
    "inner/test_inner.py": "def test_inner():\n    assert [1, 2] == [1, 3]\n",
    "table.py": "import os\nwith open(os.environ['NSA_POD_ARTIFACTS'] + '/bench.csv', 'w') as f:\n"
    "    f.write('device,S,cmp_pct\\nH200,512,50\\nH200,1024,106.3\\n')\n"
    "open(os.environ['NSA_POD_ARTIFACTS'] + '/extra.log', 'w').write('x')\n",
}
CAUSES = (
    "tests/test_five.py:5: assert double(2) == 4",
    "assert 6 == 4",
    "core/ok.py:5: assert a == b, 'they differ'",
    "called from tests/test_five.py:8",
    "Failed: DID NOT RAISE ValueError",
    "KeyError: 'missing'",
    "fixture 'no_such_fixture' not found",
    "12 skipped: needs a CUDA GPU (tests/test_five.py::test_gpu[0] and 11 more)",
    "SyntaxError: invalid syntax (core/x.py line 178)",
    "the cause of 8: broken/test_b0.py",
    "the cause of 9 failures, in broken, uses_x",
    "exit code 1: ValueError: shape 3 is odd (bench.py line 3)",
    "exit code 127: command not found: frobnicate",
    "ended by SIGSEGV in crashes/test_crash.py::test_boom at crashes/test_crash.py line 3",
    "inner/test_inner.py:2: assert [1, 2] == [1, 3]",
    "artifact bench.csv fails in row 2: cmp_pct is 106.3, expected at most 100",
    "gone blocked: gone.py is not in the commit",
    "after, after_that blocked by bench, which is failed",
    "MODE=fast",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("toy")
    toy = new_project(folder, {"local": local_pod(folder)})
    toy.commit(FILES)
    return toy


@pytest.fixture(scope="module")
def outcome(project: Project) -> Outcome:
    """Of a run in which next to nothing passes."""
    return project.run("validate", "--pod", "local", "--runbook", "toy", TOY_TOKEN="tok-secret-1")


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\\", ""))


def test_every_cause_is_seen_wherever_one_looks(project: Project, outcome: Outcome) -> None:
    assert outcome.exit_code == 1
    report = project.here("report", "--markdown").stdout
    for cause in CAUSES:
        assert cause in words(outcome.stdout), outcome.stdout
        assert cause in words(report), report
    for text in (outcome.stdout, outcome.stderr, report, project.here("report", "--json").stdout):
        assert "tok-secret-1" not in text
    assert "API_TOKEN='***API_TOKEN***'" in report and "| 1024 | 106.3 |" in report
    assert "In all rows: device = H200" in report
    assert "[extra.log](artifacts/extra.log) | table | **failed** | no" in report
    assert re.search(r"- Hardware: \d+ x .* of memory", report)
    assert re.search(r"- Time: \S+ to \S+: .* in all, .* in stages, before it .* for the environment", report)
    assert "[stderr](stages/bench/stderr)" in report

    assert "five: tests/test_five.py::test_key: KeyError: 'missing' (tests/test_five.py line 15)" in outcome.stderr
    assert outcome.stderr.count("broken: broken/test_b0.py: SyntaxError: invalid syntax (core/x.py line 178)") == 1


def test_the_result_has_it_in_fields(project: Project, outcome: Outcome) -> None:
    result = project.here("report", "--json").json
    stages: dict[str, Any] = {stage["name"]: stage for stage in result["stages"]}
    failures = {failure["id"].rpartition("::")[2]: failure for failure in stages["five"]["failures"]}
    assert failures["test_helper"] == {
        "id": "tests/test_five.py::test_helper", "outcome": "failed", "error": ["AssertionError: they differ"],
        "place": "core/ok.py:5", "line": "assert a == b, 'they differ'", "called_from": "tests/test_five.py:8",
    }  # fmt: skip
    assert stages["five"]["skips"] == [
        {"outcome": "skipped", "reason": "needs a CUDA GPU", "allowed": False, "count": 12,
         "first": "tests/test_five.py::test_gpu[0]"},
    ]  # fmt: skip
    assert stages["five"]["env"] == {"PYTHONPATH": ".", "MODE": "fast", "API_TOKEN": "***API_TOKEN***"}
    assert stages["five"]["command"] == ["python", "-m", "pytest", "-q", "tests"]
    assert [(cause["place"], cause["count"]) for cause in stages["broken"]["causes"]] == [("core/x.py:178", 8)]
    assert stages["bench"]["raised"]["place"] == "bench.py:3"
    assert stages["bench"]["stderr_tail"][-1] == "ValueError: shape 3 is odd"
    assert stages["bench"]["stdout_tail"] == ["at 3"]
    assert stages["after_that"]["blocked_by"] == "bench"
    assert [file["path"] for file in stages["table"]["unowed"]] == ["extra.log"]
    assert result["causes"][0]["stages"] == ["broken", "uses_x"]
    assert result["started"] < result["ended"] and result["seconds"] > 0 and result["environment_seconds"] >= 0

    journal = (project.root / result["path"] / "journal.jsonl").read_text().splitlines()
    told = [event for event in map(json.loads, journal) if event["event"] == "test_failed"]
    assert [event["stage"] for event in told] == ["five"] * 5 + ["broken"]
    assert all(len(json.dumps(event)) < 1000 for event in told)
