"""Stages that all pass, each with the doubts that are said of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.project import Outcome, local_pod, new_project


def stage(name: str, *argv: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "run": ["python", *argv], "expect": {"artifacts": [{"path": name, "from": "stdout"}]}, **more}


def run_stages(folder: Path, files: Mapping[str, str], stages: Sequence[tuple[dict[str, Any], list[str]]]) -> Outcome:
    """Of these stages, beside each of which stand its doubts, over the files on a local pod: they all pass."""
    project = new_project(folder, {"local": local_pod(folder)})
    runbook = {"name": "r", "environment": {"python": "system"}, "stages": [stage for stage, _ in stages]}
    project.commit({**files, "runbooks/r.yaml": json.dumps(runbook)})
    outcome = project.validate("--runbook", "r")
    assert outcome.exit_code == 0, outcome.stdout
    return outcome


def doubts_of(outcome: Outcome) -> dict[str, list[str]]:
    """What is said of each stage."""
    return {stage["name"]: stage["doubts"] for stage in outcome.json["stages"]}
