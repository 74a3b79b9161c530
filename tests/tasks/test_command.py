"""`nsa-pod run`: a command in the tree and the environment of a commit, recorded, and judged by nobody."""

from __future__ import annotations

import json

import pytest

from tests.support.project import Project

RUNBOOK = """
name: r
requires: [cuda]
environment: {python: system}
env: {GREETING: hello}
stages: [{name: s, run: [echo, "1"], expect: {artifacts: [{path: s.txt, from: stdout}]}}]
"""
CODE = (
    "import os, pathlib; print(os.environ['GREETING'], pathlib.Path('a').read_text()); os.write(2, b'err\\n'); exit(7)"
)


def commit(project: Project) -> Project:
    project.commit({"runbooks/r.yaml": RUNBOOK, "a": "of the commit"})
    project.write({"a": "not committed"})
    return project


@pytest.fixture
def committed(project: Project) -> Project:
    return commit(project)


def test_a_command_is_run_recorded_and_has_no_verdict(any_project: Project) -> None:
    committed = commit(any_project)
    done = committed.run("run", "p", "--runbook", "r", "--", "python", "-c", CODE)
    assert (done.exit_code, done.stdout) == (7, "hello of the commit\n"), done.stderr
    assert "err\n" in done.stderr and "the command ended with exit code 7" in done.stderr
    (listed,) = json.loads(committed.here("runs", "--json").stdout)
    assert listed["verdict"] is None and listed["runbook"].startswith("command: python -c import os")
    (kept,) = {path.resolve() for path in (committed.root / "artifacts/runner").glob("*/*/result.json")}
    result = json.loads(kept.read_text())
    assert "verdict" not in result and result["stages"][0]["exit_code"] == 7
    assert (kept.parent / "stages/command/stdout").read_text() == done.stdout
    assert "# COMMAND: r on pod p" in (kept.parent / "report.md").read_text()


@pytest.mark.slow
def test_no_command_stands_in_for_a_run(committed: Project) -> None:
    """The newest run is the newest that is judged."""
    green = committed.commit({"runbooks/r.yaml": RUNBOOK.replace("requires: [cuda]", "")})
    validated = committed.validate("--runbook", "r").json
    assert validated["verdict"] == "passed"
    told = committed.run("run", "--pod", "local", "--runbook", "r", "--json", "--", "true").json
    assert told["run_id"] > validated["run_id"] and told["commit"] == green
    assert committed.here("fetch", "--pod", "local", "--json").json["run_id"] == validated["run_id"]
    assert committed.here("report", "--json").json["run_id"] == validated["run_id"]
    assert (committed.root / "artifacts/runner/latest").resolve().name == validated["run_id"]
    named = committed.here("fetch", "--pod", "local", "--json", told["run_id"])
    assert named.exit_code == 0 and "verdict" not in named.json


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["local", "--", "no-such-program"], 4, "an end of its own: the program no-such-program is not on this pod"),
        (["local", "--", "python", "absent.py"], 4, "absent.py is not in the commit"),
        (["local", "--max-time", "1s", "--", "sleep", "60"], 4, "its limit was reached: --max-time 1s"),
        (["local", "--", "bash", "-c", "kill -9 $$"], 137, "the command was ended by SIGKILL"),
        (["local"], 2, "expected a command: nsa-pod run POD -- COMMAND"),
        (["local", "--", "", "a"], 2, "expected a command: nsa-pod run POD -- COMMAND"),
        (["local", "--pod", "local", "--", "true"], 2, "expected one pod, got local and --pod local"),
        (["local", "true"], 2, "unexpected extra argument"),
    ],
)
def test_how_it_ends(committed: Project, arguments: list[str], code: int, sentence: str) -> None:
    begin = committed.here if code == 2 else committed.run
    done = begin("run", "--runbook", "r", *arguments)
    assert done.exit_code == code and sentence in done.stderr, done.stderr
    assert "no evidence asked" not in done.stderr
