"""Runs of earlier formats: judged by the rules of their time, brought home from agents of their time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.report import markdown
from orchestrator.report.run import document
from orchestrator.store.run_directory import open_directory
from tests.support import ROOT
from tests.support.project import local_pod, new_project

KEPT = ROOT / "tests" / "data" / "format-1"
# What the results of this version say more than those of the run's time.
ADDED = {"notes", "causes", "started", "ended", "seconds"}
ADDED_TO_STAGES = {
    "executed", "used_cuda", "kills", "command", "env", "blocked_by", "failures", "causes", "skips", "raised",
    "stderr_tail", "stdout_tail", "unowed", "unowed_more", "doubts",
}  # fmt: skip
ADDED_TO_TESTS = {"unasserted", "not_collected"}
# Where a result was kept and made: another place is no change.
PLACE = {"path", "plan_from", "summary"}


def known(result: dict[str, Any]) -> dict[str, Any]:
    """The fields that a result of format 1 has."""
    stages = [{k: v for k, v in stage.items() if k not in ADDED_TO_STAGES} for stage in result["stages"]]
    for stage in stages:
        stage["tests"] = {k: v for k, v in stage["tests"].items() if k not in ADDED_TO_TESTS}
    return {**{k: v for k, v in result.items() if k not in ADDED | PLACE}, "stages": stages}


@pytest.fixture
def then() -> dict[str, Any]:
    result: dict[str, Any] = json.loads((KEPT / "result.json").read_text())
    return result


def test_a_kept_run_is_judged_as_it_was(tmp_path: Path, then: dict[str, Any]) -> None:
    copy = tmp_path / "run"
    shutil.copytree(KEPT, copy)
    result = open_directory(copy, tmp_path).rejudge()
    now = json.loads(result.to_json())
    assert known(now) == known(then)
    assert now["summary"].startswith(then["summary"])
    stages = {stage["name"]: stage for stage in now["stages"]}
    assert [failure["error"] for failure in stages["fails"]["failures"]] == [["assert 3 == 4"]]
    assert stages["after"]["blocked_by"] == "fails"
    assert "assert 3 == 4" in markdown.render(document(result, open_directory(copy, tmp_path).plan(), copy))


@pytest.mark.process
def test_a_run_of_an_older_agent_is_fetched(tmp_path: Path, then: dict[str, Any]) -> None:
    project = new_project(tmp_path, {"local": local_pod(tmp_path)})
    on_pod = tmp_path / "workdir" / "runs" / then["run_id"]
    for name in ("plan.json", "journal.jsonl", "stages", "artifacts"):
        source = KEPT / name
        on_pod.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, on_pod / name) if source.is_dir() else shutil.copy(source, on_pod / name)
    outcome = project.here("fetch", "--pod", "local", "--json", then["run_id"])
    assert outcome.exit_code == 1, outcome.stderr
    assert known(outcome.json) == known(then)
    home = project.root / outcome.json["path"]
    kept = {p.relative_to(KEPT).as_posix(): p.read_bytes() for p in KEPT.rglob("*") if p.is_file()}
    for name in ("plan.json", "journal.jsonl", *(n for n in kept if n.startswith(("stages/", "artifacts/")))):
        assert (home / name).read_bytes() == kept[name]
