"""A run's directory, while others settle the same run."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from orchestrator.pod.download import Downloader
from orchestrator.results import Seen
from orchestrator.store.run_directory import RunDirectory
from tests.support.run_files import ended_run


def settle_often(run: RunDirectory) -> str:
    for _ in range(30):
        Downloader(run.path)
        verdict = run.settle(Seen("ended")).verdict
    return verdict


def test_an_older_view_of_a_run_does_not_replace_its_end(tmp_path: Path) -> None:
    run = ended_run(tmp_path)
    assert run.settle(Seen("ended")).verdict == "passed"
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    seen = len(run.journal_file.read_bytes().split(b"\n", 1)[0]) + 1
    assert run.settle(Seen("running", journal_bytes=seen)).verdict == "passed"
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before
    (run.path / "manifest.json").write_text("damaged")
    assert run.settle(Seen("running", journal_bytes=seen)).verdict == "incomplete"


@pytest.mark.process
def test_followers_settle_one_after_the_other(tmp_path: Path) -> None:
    run = ended_run(tmp_path)
    (run.path / ".result.json.1").write_text("left by one who was killed")

    with ProcessPoolExecutor(3, multiprocessing.get_context("fork")) as pool:  # they write aside under their pids
        assert set(pool.map(settle_often, [run] * 3)) == {"passed"}
    files = json.loads((run.path / "manifest.json").read_bytes())["files"]
    assert [file["path"] for file in files] == ["artifacts/one.txt", "environment.json", "journal.jsonl", "plan.json"]
