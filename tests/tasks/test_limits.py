"""Limits and the estimate, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gated_run import commit, finish, validate
from tests.support.project import Project


@pytest.mark.slow
def test_the_estimate_is_shown_before_the_start(project: Project) -> None:
    commit(project).touch()
    first = finish(validate(project))
    assert first.exit_code == 0 and "how long the stages take is unknown" in first.stderr
    second = finish(validate(project, "--max-time", "1h"))
    assert "by 1 earlier run on this pod; the run is ended at --max-time 1h" in second.stderr
    dry = project.here("validate", "--pod", "local", "--runbook", "r", "--dry-run", "--json")
    assert dry.json["estimate"]["runs"] == 2 and dry.json["estimate"]["by_limit"] == []
    assert 0 < dry.json["estimate"]["seconds"] < 60 and "by 2 earlier runs" in dry.stderr
    assert second.json["verdict"] == "passed" and "ended_early" not in second.json


def test_a_damaged_result_only_misses_in_the_estimate(project: Project) -> None:
    commit(project).touch()
    kept = project.root / finish(validate(project)).json["path"]
    for name in ("result.json", "plan.json"):
        (kept / name).write_bytes(b"\xff" + (kept / name).read_bytes())
        dry = project.here("validate", "--pod", "local", "--runbook", "r", "--dry-run", "--json")
        assert dry.exit_code == 0 and dry.json["estimate"]["runs"] == 0, dry.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--max-cost", "1"], "pod 'local' has no price: expected its cost_per_hour"),
        (["--max-time", "soon"], "--max-time: expected a duration such as 90m"),
        (["--wait", "--steal"], "expected --wait or --steal, not both"),
        (["--resume", "--max-time", "1h"], "expected no --max-time"),
    ],
)
def test_options_that_cannot_be_are_bad_input(project: Project, arguments: list[str], sentence: str) -> None:
    commit(project)
    outcome = finish(validate(project, *arguments))
    assert outcome.exit_code == 2 and sentence in outcome.json["error"]
    assert not Path(project.root / "artifacts").exists()
