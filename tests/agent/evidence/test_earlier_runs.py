"""What a stage reads that another run on the pod has left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from orchestrator.agent.evidence.earlier_runs import left_by_others

pytestmark = pytest.mark.unit


def begin(workdir: Path, name: str, *, ended: float) -> Path:
    """A run that has begun a minute before and has `ended` so many seconds from now."""
    run = workdir / "runs" / name
    run.mkdir(parents=True)
    for file, seconds in (("plan.json", -60.0), ("journal.jsonl", ended)):
        (run / file).write_text("{}")
        os.utime(run / file, (time.time() + seconds,) * 2)
    return run


def test_what_another_run_has_left_is_told_and_what_tools_keep_is_not(tmp_path: Path) -> None:
    own = begin(tmp_path / "workdir", "own", ended=60)
    names = ("golden.npy", ".cache/fonts.json", "models/weights", "hub/data", "workdir/runs/own/made")
    files = [tmp_path / name for name in names]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("9.0")
    (tmp_path / "data.lock").touch()
    read = [*map(str, files), str(tmp_path / "data.lock"), str(tmp_path), str(tmp_path / "gone")]
    variables = {"TORCH_HOME": str(tmp_path / "models"), "HF_HOME": f"{tmp_path}/hub/", "NO_CACHE": ""}
    assert not list(left_by_others(read, (), own, variables))
    begin(tmp_path / "workdir", "ended", ended=-30)
    assert not list(left_by_others(read, (), own, variables))
    begin(tmp_path / "workdir", "other", ended=30)
    (told,) = left_by_others(read, (), own, variables)
    said = f"it reads {files[0]}, which the run other has left, and nothing of this one has made"
    assert told == (str(files[0]), said)


def test_a_file_that_the_trees_code_names_is_told_wherever_it_lies_but_where_it_was_fetched(tmp_path: Path) -> None:
    own = begin(tmp_path / "workdir", "own", ended=60)
    begin(tmp_path / "workdir", "other", ended=30)
    names = (".cache/mine/golden.npy", "cache/golden.npy", ".cache/huggingface/a/weights", "hub/b/weights")
    files = [str(tmp_path / name) for name in names]
    for file in map(Path, files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("9.0")
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HF_HOME": str(tmp_path / "hub")}
    assert not list(left_by_others(files, (), own, variables))
    assert [file for file, _ in left_by_others(files, files, own, variables)] == files[:2]
