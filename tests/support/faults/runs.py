"""The repository that the fault tests run: stages short and long, and what is asked about a run afterwards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.faults import world
from tests.support.project import Outcome, Project


def said(name: str, code: str, **over: Any) -> dict[str, Any]:
    """A stage that runs Python `code` and owes what it prints."""
    expect = {"artifacts": [{"path": f"{name}.txt", "from": "stdout"}, *over.pop("owes", [])]}
    return {"name": name, "run": ["python", "-c", code], "expect": expect, **over}


def files(*stages: Mapping[str, Any]) -> dict[str, str]:
    """A repository with the runbook `r` of these stages; JSON is YAML."""
    runbook = {"name": "r", "environment": {"python": "system"}, "stages": list(stages)}
    return {"runbooks/r.yaml": json.dumps(runbook), "README.md": "tiny\n"}


def first_and_long(seconds: float = 3.0) -> dict[str, str]:
    """Two stages: one that passes at once, and one that takes its time."""
    return files(said("first", "print('one')"), said("long", f"import time; time.sleep({seconds}); print('two')"))


def start(project: Project, **extra: str) -> subprocess.Popen[str]:
    """`nsa-pod validate --json`, going on."""
    return project.popen("validate", "--pod", "p", "--runbook", "r", "--json", **extra)


def end(process: subprocess.Popen[str], seconds: float = 90) -> Outcome:
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert "Traceback" not in stderr, stderr
    return Outcome(process.returncode, stdout, stderr)


def run(project: Project, *arguments: str) -> Outcome:
    """One command to its end; whatever it says, it is no traceback."""
    return end(project.popen(*arguments, "--json"))


def statuses(outcome: Outcome) -> Sequence[str]:
    return [stage["status"] for stage in outcome.json["stages"]]


def check(project: Project, workdir: Path, outcome: Outcome, verdict: str, *expected: str) -> None:
    """The verdict and each stage's status; then nothing lost, no orphan, no stale lock."""
    result = outcome.json
    assert (result["verdict"], *statuses(outcome)) == (verdict, *expected), f"{result}\n{outcome.stderr}"
    world.check_rest(workdir)
    there = workdir / "runs" / result["run_id"]
    if there.exists():
        world.check_home(there, project.root / result["path"])
