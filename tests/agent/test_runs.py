"""Runs that go while they are looked at."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from orchestrator.agent import commands, runs


def test_a_run_that_is_removed_while_it_is_looked_at_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "plan.json").write_text("{}")
    looked_at = runs.state_of

    def remove(run_dir: Path) -> dict[str, object]:
        if run_dir.name == "a":
            shutil.rmtree(run_dir)
        return looked_at(run_dir)

    monkeypatch.setattr(runs, "state_of", remove)
    assert [run["run_id"] for run in runs.list_runs(tmp_path)[0]] == ["b"]


def test_an_agent_that_ends_before_the_signal_was_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = 1 << 22  # no kernel has so large a pid
    monkeypatch.setattr(runs, "living_agent", lambda run_dir: nobody)
    assert commands.main(["cancel", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["signalled"] is False
