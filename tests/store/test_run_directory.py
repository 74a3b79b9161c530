"""A run's directory, while others settle the same run; and beside an earlier one."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.pod.download import Downloader
from orchestrator.results import Result, Seen
from orchestrator.shared.files import describe
from orchestrator.store.run_directory import RunDirectory, kept
from orchestrator.verdict.case import SESSIONS
from tests.support.files import write_files
from tests.support.in_process import command
from tests.support.repository import Git
from tests.support.run_files import ended_run, make_run, record, write_journal


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


AFTER = "the last passed run of this runbook on pod p (commit aaaaaaa)"


def run_of(
    folder: Path,
    commit: str,
    tests: list[str],
    asserts: list[str],
    stages: tuple[str, ...] = ("t",),
    least: int = 1,
    elements: int = 1,
    **more: Any,
) -> Result:
    """A run whose stage `t` ran these tests, each of which compared so many elements, and reached these assertions."""
    asked = json.dumps({"artifacts": [{"path": "t.txt", "from": "stdout"}], "tests": {"min_passed": least}})
    others = {name: True for name in stages if name != "t"}
    extra = f"  - {{name: t, run: [tool], expect: {asked}}}\n"
    run, plan = make_run(folder, others, extra, commit=commit * 40, tree_hash=commit * 40, **more)
    checks = {"ran": 1, "compared": [[0.1, elements]]}
    lines: list[dict[str, object]] = [
        {"event": "start"},
        *({"event": event, "ids": tests} for event in ("collected", "selected")),
    ]
    for test in tests:
        known = {"event": "phase", "id": test, "outcome": "passed"}
        lines += [{**known, "when": "call"}, {**known, "when": "teardown", "checks": checks}]
    lines += [{"event": "assertions", "due": [], "reached": asserts}, {"event": "end", "status": 0}]
    path = f"stages/t/{SESSIONS}/1.jsonl"
    write_files(run.path, {path: "".join(f"{json.dumps(line)}\n" for line in lines)})
    told = record(run, "t")
    records = [record(run, name) for name in others]
    write_journal(run, plan, [*records, {**told, "files": [*told["files"], describe(run.path, path)]}])
    result = run.settle(Seen("ended"))
    assert result.verdict == "passed", result.stages
    assert all(note in (run.path / "report.md").read_text().replace("\\", "") for note in result.notes)
    return result


def test_what_the_last_passed_run_had_and_this_one_has_not_is_said(tmp_path: Path) -> None:
    places = ["test_it.py:3", "test_it.py:4", "test_b.py:1"]
    run_of(tmp_path, "a", ["a", "b", "c"], places, ("t", "more"), least=2)
    assert run_of(tmp_path, "b", ["a", "d"], places[1:]).notes == [
        f"{AFTER} had 1 stage that this one has not: more",
        f"t was asked for something else in {AFTER}: tests",
        f"t lacks 2 tests that passed in {AFTER}, and has 1 that were not in it: b, c",
        f"fewer assertions of t ran than in {AFTER}: test_it.py (1, not 2)",
    ]


def test_nothing_is_said_of_a_run_that_has_all_that_the_last_one_had(tmp_path: Path) -> None:
    first = run_of(tmp_path, "a", ["a"], ["test_it.py:3"])
    assert run_of(tmp_path, "b", ["a", "b"], ["test_it.py:3", "test_it.py:9"], ("t", "more")).notes == []
    assert first.notes == []


def test_a_run_is_held_against_no_other_run_of_its_own_tree(tmp_path: Path) -> None:
    run_of(tmp_path, "a", ["a", "b"], [])
    without = run_of(tmp_path, "b", ["a"], []).notes
    assert without and run_of(tmp_path, "b", ["a"], []).notes == without


def test_an_earlier_run_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    before = run_of(tmp_path, "a", ["a", "b"], [])
    (tmp_path / before.path / "journal.jsonl").write_text("damaged")
    assert run_of(tmp_path, "b", ["a"], []).notes == []


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])  # exFAT, FAT
def test_a_file_system_may_have_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*args: object, **how: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "symlink_to", refuse)
    run = ended_run(tmp_path)
    run.settle(Seen("ended"))
    assert [one.path for one in kept(tmp_path / "artifacts", tmp_path)] == [run.path]
    assert sorted(os.listdir(tmp_path / "artifacts/runner")) == [".gitignore", ".lock", "c" * 40]


def test_a_copy_that_followed_links_holds_each_run_once_and_takes_new_ones(tmp_path: Path) -> None:
    run = ended_run(tmp_path)
    run.settle(Seen("ended"))
    artifacts = tmp_path / "copied"
    shutil.copytree(tmp_path / "artifacts", artifacts)  # which follows them
    assert not (artifacts / "runner/ccccccc").is_symlink()
    (copied,) = kept(artifacts, tmp_path)
    assert copied.path == artifacts / "runner" / ("c" * 40) / run.path.name
    copied.settle(Seen("ended"))
    assert (artifacts / "runner/ccccccc").is_symlink() and (artifacts / "runner/latest").resolve() == copied.path
    assert [one.path for one in kept(artifacts, tmp_path)] == [copied.path]
    shutil.rmtree(copied.path.parent)
    assert [one.path.name for one in kept(artifacts, tmp_path)] == [run.path.name], "what a copy alone holds"


# Of runs of the same second the commits tell the order.
FEWER = f"tests of t compared fewer elements than in {AFTER}: a (8, not 4,096)"


def test_a_test_that_compares_less_under_its_id_is_said(tmp_path: Path) -> None:
    run_of(tmp_path, "a", ["a", "b"], [], elements=4096)
    assert run_of(tmp_path, "b", ["a"], [], elements=8).notes[-1] == FEWER


def test_what_differs_from_run_to_run_is_not_said(tmp_path: Path) -> None:
    run_of(tmp_path, "0", ["a"], [], elements=9)
    run_of(tmp_path, "a", ["a"], [], elements=4096)
    assert run_of(tmp_path, "b", ["a"], [], elements=8).notes == []


def test_a_run_that_was_asked_for_less_is_no_base_and_lacks_nothing(tmp_path: Path) -> None:
    """As one of a bisection is."""
    run_of(tmp_path, "a", ["a"], [], ("t", "more"), elements=4096)
    part = run_of(tmp_path, "d", ["a"], [], elements=9, partial=True)
    assert [note.partition(" than")[0] for note in part.notes] == ["tests of t compared fewer elements"]
    assert run_of(tmp_path, "f", ["a"], [], elements=8).notes == [
        f"{AFTER} had 1 stage that this one has not: more",
        FEWER,
    ]


def test_a_stage_is_held_against_the_last_run_in_which_it_passed(tmp_path: Path) -> None:
    run_of(tmp_path, "a", ["a"], [], elements=4096)
    other, plan = make_run(tmp_path, {"t": False, "more": True}, commit="d" * 40, tree_hash="d" * 40)
    write_journal(other, plan, [record(other, "t", exit_code=1), record(other, "more")])
    assert other.settle(Seen("ended")).verdict == "passed"
    assert run_of(tmp_path, "f", ["a"], [], ("t", "more"), elements=8).notes == [FEWER]


@pytest.mark.process
@pytest.mark.parametrize("repo", [".", "src/deep", "{root}/src"])
def test_results_are_those_of_the_repository_seen_from_any_of_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: str
) -> None:
    """`<repo>/artifacts`, and paths relative to the repository: for each verb that reads what is kept."""
    root = tmp_path / "ä b"
    Git(root).commit({"src/deep/x.py": ""})
    run = ended_run(root)
    settled = run.settle(Seen("ended"))
    monkeypatch.chdir(root if repo != "." else root / "src" / "deep")
    folder = repo.format(root=root)
    reported = json.loads(command("report", "--json", "--repo", folder).out)
    assert (reported["verdict"], reported["path"]) == ("passed", settled.path)
    assert Path(command("report", "--repo", folder).out.splitlines()[-1].partition(": ")[2]).is_file()  # from here
    assert [found["run_id"] for found in json.loads(command("runs", "--json", "--repo", folder).out)] == [run.path.name]
    assert command("logs", "latest", "none", "--repo", folder).err.startswith(f"error: run {run.path.name} has no")
    assert command("pack", "--repo", folder, "--output", str(tmp_path / "one.tar.gz")).code == 0
    monkeypatch.chdir(tmp_path)  # outside of a repository it is the folder itself
    assert json.loads(command("report", "--json", "--artifacts", str(root / "artifacts")).out)["verdict"] == "passed"
    assert f"no run is kept in {Path('artifacts')}:" in command("report").err
