"""What earlier runs took: only those of this repository, on this pod, tell how long a stage takes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.store import launches
from orchestrator.store.history import history
from orchestrator.store.launches import Launch

KEPT = Path(__file__).parents[1] / "data" / "format-1"


@pytest.mark.parametrize(
    ("repo", "pod", "stages"),
    [("mine", "local", ["bench", "leaves", "strays", "tells", "tests"]), ("other", "local", []), ("mine", "p", [])],
)
def test_runs_of_other_repositories_and_pods_tell_nothing(
    laptop: Path, tmp_path: Path, repo: str, pod: str, stages: list[str]
) -> None:
    run = tmp_path / "20260101T000000Z-a"
    shutil.copytree(KEPT, run)
    launches.remember(Launch(run.name, "local", "c", str(tmp_path / "mine"), str(run)))
    found = history(Pod(name=pod, transport="local"), tmp_path / "artifacts", tmp_path / repo)
    assert sorted(name for name, _ in found.durations) == stages and found.runs == bool(stages)
