"""What the agent sees of where an artifact came from."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.evidence.borrowed import Sources
from orchestrator.agent.evidence.collect import Artifacts, Figures
from orchestrator.agent.evidence.measuring import Measuring
from orchestrator.agent.host.moment import Moment
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


def test_a_file_that_has_a_name_in_the_tree_is_parted_from_it(places: Layout) -> None:
    artifacts = Artifacts(places, [], Sources(places.run_dir, {}, []))
    write_files(places.tree, {"golden.csv": "S,ms\n"})
    os.link(places.tree / "golden.csv", places.artifacts / "mine.csv")
    assert artifacts.deliver({"path": "mine.csv"}, "s", places.tree) == (
        "has another name outside artifacts/ (a hard link)"
    )
    assert artifacts.made() == (["mine.csv"], [])
    (places.tree / "golden.csv").chmod(0o600)  # as the tree is set in order
    assert artifacts.made() == ([], [])
    assert (places.artifacts / "mine.csv").read_text() == "S,ms\n"


def figures(places: Layout, text: str, **over: Any) -> Figures:
    """What is said of the artifact `text`; a Python of the stage read no clock, unless `over` says otherwise."""
    artifacts = Artifacts(places, [], Sources(places.run_dir, {}, []))
    artifacts.begin([{"path": "own.csv"}], places.tree)
    write_files(places.artifacts, {"own.csv": text})
    told: dict[str, Any] = {
        "has_clock": False,
        "unwaited": False,
        "ran_cells": False,
        "others": (),
        "texts": (),
        "argv": (),
        "read": (),
        "env": {},
        "cwd": places.tree,
    }
    return artifacts.figures([{"path": "own.csv", **over.pop("asked", {})}], Measuring(**{**told, **over}))


TABLE = "S,ms\n512,1.534\n1024,2.944\n"


@pytest.mark.parametrize(
    "over",
    [
        {"has_clock": True},
        {"others": ["nsys"]},
        {"text": "S,error\n512,1.534\n"},
        {"text": "S,ms\n512,2\n"},
        {"asked": {"reproducible": True}},
        {"text": '{"loss": 2.31, "window_ms": 12.5}', "asked": {"kind": "json", "keys": ["loss"]}},
        {"text": '{"config": {"hop_ms": 6.25}, "by": {"a": 0.9}}', "asked": {"kind": "json", "keys": ["by"]}},
        {"text": "S,err,frame_ms\n512,0.01,12.5\n", "asked": {"kind": "csv", "columns": ["S", "err"]}},
        {"text": "a window of 12.5 ms, twice\n", "argv": ["python", "x.py", "--window-ms", "12.5"]},
        {"text": '{"window_ms": 12.5}', "argv": ["python", "x.py", "--window-ms=12.5"]},
        {"text": '{"window_ms": 12.5}', "env": {"WINDOW_MS": "12.5"}},
    ],
)
def test_figures_that_may_be_measured(places: Layout, over: dict[str, Any]) -> None:
    assert figures(places, **{"text": TABLE, **over}) == ({}, [])


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"asked": {"kind": "csv", "columns": ["S"]}},
        {"asked": {"kind": "csv", "columns": ["S", "ms"]}},
        {"text": "S,ms,speedup\n512,1.534,1.5\n", "asked": {"kind": "csv", "columns": ["speedup"]}},
        {"text": '{"runs": [{"ms": 1.534}]}', "asked": {"kind": "json", "keys": ["runs"]}},
        {"argv": ["bash", "-c", "echo 512,1.534"]},
        {"asked": {"kind": "csv", "columns": ["S"], "checks": [{"column": "ms", "max": 9}]}},
    ],
)
def test_times_without_a_clock_are_a_doubt(places: Layout, over: dict[str, Any]) -> None:
    told = figures(places, **{"text": TABLE, **over}).doubts
    assert told == ["artifact own.csv holds ms, and nothing was timed in its stage"]


NOTEBOOK = {"metadata": {"language_info": {"name": "python"}}, "cells": [{"cell_type": "code", "source": ["f(2)"]}]}


def notebook(places: Layout, made: object, **over: Any) -> list[str]:
    artifacts = Artifacts(places, [], Sources(places.run_dir, {}, []))
    artifacts.begin([{"path": "own.ipynb"}], places.tree)
    write_files(places.artifacts, {"own.ipynb": json.dumps(made)})
    told = {"has_clock": True, "unwaited": False, "ran_cells": False, "others": (), "texts": (), "argv": (), **over}
    measuring = Measuring(**{"read": (), "env": {}, "cwd": places.tree, **told})
    return artifacts.figures([{"path": "own.ipynb"}], measuring).doubts


def test_a_notebook_of_which_no_cell_was_run_is_a_doubt(places: Layout) -> None:
    assert notebook(places, NOTEBOOK) == ["artifact own.ipynb holds 1 cell of code, and no cell was run in its stage"]


def test_a_notebook_that_ran_or_was_made_of_one_that_did(places: Layout) -> None:
    write_files(places.run_dir, {"artifacts/first.ipynb": "{}"})
    assert notebook(places, NOTEBOOK, ran_cells=True) == []
    assert notebook(places, {**NOTEBOOK, "cells": [{"cell_type": "markdown", "source": "# Text"}]}) == []
    assert notebook(places, {**NOTEBOOK, "metadata": {"language_info": {"name": "R"}}}) == []
    assert notebook(places, ["no notebook"]) == []
    assert notebook(places, NOTEBOOK, read=[str(places.artifacts / "first.ipynb")]) == []


@pytest.mark.parametrize("place", ["artifacts/raw.csv", "builds/first/raw.csv"])
def test_times_that_an_earlier_stage_has_left_need_no_clock(places: Layout, place: str) -> None:
    write_files(places.run_dir, {place: TABLE})
    read = places.artifacts if place.startswith("artifacts") else places.tree
    assert figures(places, TABLE, read=[str(read / "raw.csv")]).doubts == []


@pytest.mark.parametrize(
    "text",
    [
        "cp {folder}/old.csv $OUT",
        'DIR={folder}\nfor f in "$DIR"/o*.csv; do cat $f; done',
        "tar -c ~/ > $OUT",
        "cat ../old.csv",
        "curl -s file://{folder}/old.csv -o $OUT",
        "cd ~ && cp old.csv $OUT",
        'pushd "{folder}" > /dev/null; cat old.csv > $OUT; popd',
    ],
)
def test_a_copy_of_a_file_that_a_script_names_is_none_of_the_stage(
    places: Layout, tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("home")
    old = aged(folder / "old.csv", HOUR)
    old.write_text("ms;S\n1.5340;512\n2.944;1024\n")
    os.utime(old, (time.time() - HOUR,) * 2)
    (folder / "work").mkdir()
    how = {"texts": [text.format(folder=folder)], "env": {"HOME": str(folder)}, "cwd": folder / "work"}
    assert figures(places, TABLE, **how).borrowed == {
        "own.csv": f"holds what {old} holds, which was there before the stage"
    }
    os.utime(old)
    assert figures(places, TABLE, **how).borrowed == {}


def test_figures_among_which_all_of_an_older_file_are_a_doubt(
    places: Layout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old = tmp_path_factory.mktemp("home") / "cache.json"
    old.write_text('{"a": 1.5341, "b": 2.9443, "note": "tuned"}')
    os.utime(old, (time.time() - HOUR,) * 2)
    found = figures(places, "S,ms\n512,1.5341\n1024,2.9443\n", read=[str(old)], has_clock=True)
    assert found == ({}, [f"artifact own.csv holds 2 figures, all of which stand in {old}, older than the stage"])
