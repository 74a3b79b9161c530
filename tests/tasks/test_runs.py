"""The list of runs: what it says, what is wanted of it, what it costs, while some of them go."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.errors import InputError
from orchestrator.home import home
from orchestrator.results import Seen
from orchestrator.store import launches
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks.runs import Filter, kept_here, since
from tests.support.run_files import ended_run, make_run, record, write_journal

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


def test_a_launch_that_is_refused_meanwhile_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended_run(tmp_path)
    run.settle(Seen("ended"))
    launches.remember(launches.Launch("r", "p", "c", "/repo", "/d"))
    (home() / "runs" / "gone.json").symlink_to("nowhere")  # listed, and then not there
    assert [launch.run_id for launch in launches.launches()] == ["r"]
    assert [kept["verdict"] for kept in kept_here(tmp_path / "artifacts", tmp_path)] == ["passed"]
    plan_file = RunDirectory.plan_file.fget

    def vanish(directory: RunDirectory) -> Path:
        shutil.rmtree(directory.path)
        assert plan_file is not None
        return Path(plan_file(directory))

    monkeypatch.setattr(RunDirectory, "plan_file", property(vanish))
    assert kept_here(tmp_path / "artifacts", tmp_path) == []


def test_a_run_is_listed_with_what_it_took_and_cost(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"one": True})
    write_journal(run, plan, [record(run, "one")])
    lines = run.journal_file.read_text().splitlines()
    run.settle(Seen("ended"))
    late = json.dumps({**json.loads(lines[-1]), "t": 1800.0})
    run.journal_file.write_text("\n".join([*lines[:-1], late]) + "\n")
    (listed,) = kept_here(tmp_path / "artifacts", tmp_path)
    assert listed["run_id"] == plan["run_id"] and listed["date"] == plan["created"]
    assert (listed["verdict"], listed["state"], listed["runbook"]) == ("passed", "ended", "r")
    assert (listed["seconds"], listed["cost"]) == (1800.0, 1.0)


def test_one_that_goes_on_has_no_verdict_and_a_damaged_one_hides_no_other(tmp_path: Path) -> None:
    going_on, plan = make_run(tmp_path, {"one": True})
    broken = going_on.path.parent / "20200101-000000-ccccccc-00000000"
    broken.mkdir()
    (broken / "plan.json").write_text('{"pod": [}')
    first, second = kept_here(tmp_path / "artifacts", tmp_path)
    assert (first["run_id"], first["state"], first["verdict"]) == (plan["run_id"], "running", None)
    assert first["seconds"] is None and first["cost"] is None
    assert second["verdict"] == "error" and "is damaged" in second["error"] and second["date"] == "2020-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(), True),
        (Filter(pod="p"), True),
        (Filter(pod="q"), False),
        (Filter(commit="c" * 40), True),
        (Filter(commit="d" * 40), False),
        (Filter(verdicts=("failed", "passed")), True),
        (Filter(verdicts=("failed",)), False),
        (Filter(since=datetime(2020, 1, 1, tzinfo=timezone.utc)), True),
        (Filter(since=datetime(2100, 1, 1, tzinfo=timezone.utc)), False),
    ],
)
def test_filters(tmp_path: Path, wanted: Filter, found: bool) -> None:
    ended_run(tmp_path).settle(Seen("ended"))
    assert bool(kept_here(tmp_path / "artifacts", tmp_path, wanted)) == found


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-20", (2026, 11, 20, 0)),
        ("2026-11-20T08:00", (2026, 11, 20, 8)),
        ("2026-11-20T08:00+02:00", (2026, 11, 20, 6)),
        ("7d", (2026, 11, 16, 12)),
        ("12h", (2026, 11, 23, 0)),
    ],
)
def test_since(text: str, moment: tuple[int, ...]) -> None:
    assert since(text, NOW) == datetime(*moment, tzinfo=timezone.utc)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize("text", ["", "yesterday", "d", "9" * 30 + "d", "2026-13-01"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(InputError, match="--since: expected a date such as 2026-11-20, or 7d"):
        since(text, NOW)


def test_five_hundred_runs_are_listed_fast_and_no_data_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended_run(tmp_path)
    run.settle(Seen("ended"))
    for folder in ("stages", "artifacts"):
        shutil.rmtree(run.path / folder, ignore_errors=True)
    for number in range(499):
        shutil.copytree(run.path, run.path.parent / f"20260101-{number:06}-ccccccc-00000000")
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    with pytest.raises(SystemExit):
        main(["runs", "--json"])
    took = time.monotonic() - began
    listed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert len(listed) == 500 and {found["verdict"] for found in listed} == {"passed"}
    assert took < 5, f"{took:.1f} s"  # 0.4 s on an idle machine
