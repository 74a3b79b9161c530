"""What is known of runs, while some of them go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.home import home
from orchestrator.results import Seen
from orchestrator.store import launches
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks.runs import kept_here
from tests.support.run_files import ended_run


def test_a_launch_that_is_refused_meanwhile_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended_run(tmp_path)
    run.settle(Seen("ended"))
    launches.remember(launches.Launch("r", "p", "c", "/repo", "/d"))
    (home() / "runs" / "gone.json").symlink_to("nowhere")  # listed, and then not there
    assert [launch.run_id for launch in launches.launches()] == ["r"]
    assert [kept["verdict"] for kept in kept_here(tmp_path / "artifacts", tmp_path)] == ["passed"]

    def rejudge(directory: RunDirectory) -> None:
        shutil.rmtree(directory.path)
        directory.plan()

    monkeypatch.setattr(RunDirectory, "rejudge", rejudge)
    assert kept_here(tmp_path / "artifacts", tmp_path) == []
