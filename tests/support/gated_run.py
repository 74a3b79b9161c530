"""A repository whose runbook waits for a file to appear, and what the tests do with it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.project import Outcome, Project
from tests.support.waiting import wait_for

RUNBOOK = """\
name: r
environment: {python: system}
limits: {wall: 300, grace: 1}
stages:
  - {name: first, run: [echo, "1"], expect: {artifacts: [{path: first.txt, from: stdout}]}}
  - {name: waits, run: [python, waits.py, GATE], expect: {artifacts: [{path: waits.txt, from: stdout}]}}
  - {name: last, run: [echo, "3"], expect: {artifacts: [{path: last.txt, from: stdout}]}}
"""
WAITS = """\
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("opened")
"""


def commit(project: Project) -> Path:
    """Commit the runbook `r`; the file that its second stage waits for."""
    gate = project.root.parent / "gate"
    project.commit({"runbooks/r.yaml": RUNBOOK.replace("GATE", str(gate)), "waits.py": WAITS})
    return gate


def clone(source: Project, target: Project) -> None:
    target.root.parent.mkdir()
    source.git("clone", "-q", str(source.root), str(target.root))


def validate(project: Project, *arguments: str) -> subprocess.Popen[str]:
    """`nsa-pod validate` going on; the caller ends it."""
    return project.popen("validate", "--pod", "local", "--runbook", "r", "--json", *arguments)


def finish(process: subprocess.Popen[str], limit: float = 150) -> Outcome:
    stdout, stderr = process.communicate(timeout=limit)
    return Outcome(process.returncode, stdout, stderr)


def events(project: Project) -> list[dict[str, Any]]:
    """Of the journals on the pod, in no particular order."""
    found = sorted((project.root.parent / "workdir" / "runs").glob("*/journal.jsonl"))
    return [json.loads(line) for file in found for line in file.read_text().splitlines(True) if line.endswith("\n")]


def run_ids(project: Project) -> list[str]:
    return sorted(path.parent.name for path in (project.root.parent / "workdir" / "runs").glob("*/journal.jsonl"))


def wait_until_waiting(project: Project, runs: int = 1) -> str:
    """The second stage of that many runs has begun on the pod; the newest run's id."""

    def begun() -> bool:
        return sum(e["event"] == "stage_started" and e["stage"] == "waits" for e in events(project)) >= runs

    wait_for(begun, "the second stage", 150)
    return run_ids(project)[-1]
