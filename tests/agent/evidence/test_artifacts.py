"""What the agent sees of where an artifact came from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.evidence.borrowed import Sources
from orchestrator.agent.evidence.collect import Artifacts
from orchestrator.agent.evidence.moment import Moment
from orchestrator.agent.layout import Layout
from orchestrator.shared import tree
from tests.support.files import write_files

HOUR = 3600.0


@pytest.fixture
def places(tmp_path: Path) -> Layout:
    found = Layout(tmp_path)
    for folder in (found.artifacts, found.tree, found.stage("s")):
        folder.mkdir(parents=True)
    for stream in ("stdout", "stderr"):
        (found.stage("s") / stream).write_text(f"{stream} of it")
    return found


def aged(path: Path, seconds: float) -> Path:
    path.write_text("x")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_what_was_written_before_a_moment(tmp_path: Path) -> None:
    moment = Moment(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert moment.is_after(aged(tmp_path / "old", HOUR))
    assert not moment.is_after(aged(tmp_path / "new", 0))
    assert not moment.is_after(aged(tmp_path / "rounded_down", 1.5))
    assert not moment.is_after(aged(tmp_path / "of_the_future", -HOUR))
    assert not moment.is_after(tmp_path / "gone")


def test_a_clock_that_is_put_back_makes_nothing_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = Moment(tmp_path)
    now: Callable[[], float] = time.time
    monkeypatch.setattr(time, "time", lambda: now() - HOUR)
    assert not moment.is_after(aged(tmp_path / "honest", 0))
    assert moment.is_after(aged(tmp_path / "old", HOUR))


def test_artifacts_that_are_older_than_the_stage(places: Layout) -> None:
    artifacts = Artifacts(places, [], Sources(places.run_dir, {}, []))
    asked: list[dict[str, Any]] = [
        {"path": "own"},
        {"path": "cached"},
        {"path": "said", "from": "stdout"},
        {"path": "built", "from": "tree:out/built"},
    ]
    assert artifacts.begin(asked, places.tree) == {"own": False, "cached": False, "said": False, "built": False}
    (places.tree / "out").mkdir()
    aged(places.artifacts / "own", 0)
    aged(places.artifacts / "cached", HOUR)
    aged(places.tree / "out/built", HOUR)
    assert [artifacts.deliver(a, "s", places.tree) for a in asked] == [None] * 4
    assert artifacts.older(asked, places.tree) == ["cached", "built"]


def test_artifacts_that_equal_a_file_of_the_commit(places: Layout) -> None:
    write_files(places.tree, {"golden.txt": "1 of 1", "empty.py": "", "said.txt": "stderr of it"})
    artifacts = Artifacts(places, [tree.scan(places.tree)], Sources(places.run_dir, {}, []))
    asked: list[dict[str, Any]] = [
        {"path": "copy"}, {"path": "other"}, {"path": "empty"}, {"path": "err", "from": "stderr"}
    ]  # fmt: skip
    artifacts.begin(asked, places.tree)
    write_files(places.artifacts, {"copy": "1 of 1", "other": "1 of 1\n", "empty": ""})
    assert [artifacts.deliver(a, "s", places.tree) for a in asked] == [None] * 4
    assert (places.artifacts / "err").read_text() == "stderr of it"
    assert artifacts.equal_to_committed(asked) == {"copy": "golden.txt", "err": "said.txt"}


def test_a_file_of_the_commit_was_there_before(places: Layout) -> None:
    (places.tree / "result.txt").write_text("passed")
    asked = [{"path": "it", "from": "tree:result.txt"}]
    assert Artifacts(places, [tree.scan(places.tree)], Sources(places.run_dir, {}, [])).begin(asked, places.tree) == {
        "it": True
    }
