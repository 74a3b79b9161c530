"""Runs that another laptop launched: followed, fetched and cancelled by the pod's copy of the plan, which says so."""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import PodError
from orchestrator.pod.session import PodSession
from orchestrator.shared.plan import plan_hash
from orchestrator.tasks.cancel import cancel
from tests.support.gated_run import clone, commit, finish, run_ids, validate, wait_until_waiting
from tests.support.project import Project, with_pod
from tests.support.waiting import wait_for

FROM_POD = "judged by the pod's copy of the plan"


def test_follow_fetch_and_report_from_another_laptop(project: Project, other: Project) -> None:
    gate = commit(project)
    clone(project, other)
    first = validate(project)
    run_id = wait_until_waiting(project)
    first.send_signal(signal.SIGKILL)  # the laptop that launched it is gone
    first.communicate()
    following = other.popen("follow", "--pod", "local", "--json", run_id)
    wait_for(lambda: any((other.root / "artifacts").glob("runner/*/*/journal.jsonl")))
    gate.touch()
    followed = finish(following)
    result = followed.json
    assert (followed.exit_code, result["verdict"], result["run_id"]) == (0, "passed", run_id), followed.stderr
    assert result["plan_from"] == "pod" and FROM_POD in result["summary"]
    assert other.here("fetch", "--pod", "local", "--json").json == result
    assert other.here("report", "--json").json == result
    own = project.here("fetch", "--pod", "local", "--json").json
    assert own["plan_from"] == "laptop" and FROM_POD not in own["summary"]
    elsewhere = project.root.parent / "elsewhere"
    moved = project.here("fetch", "--pod", "local", "--json", "--artifacts", str(elsewhere)).json
    assert moved == {**own, "path": str(elsewhere / "runner" / own["commit"] / run_id)}
    assert (elsewhere / "runner" / "latest" / "journal.jsonl").exists()


def test_cancel_from_another_laptop(project: Project, other: Project) -> None:
    commit(project)
    clone(project, other)
    first = validate(project)
    run_id = wait_until_waiting(project)
    assert other.here("cancel", "--pod", "local", "--json", run_id).json == {"cancelled": run_id}
    result = finish(first).json
    assert result["verdict"] == "incomplete" and "it was cancelled by " in result["summary"]
    assert [s["status"] for s in result["stages"]] == ["passed", "cancelled", "not_run"]
    assert "it was cancelled by" in result["stages"][2]["reason"]
    theirs = other.here("fetch", "--pod", "local", "--json", run_id)
    assert (theirs.exit_code, theirs.json["verdict"]) == (3, "incomplete")


@pytest.mark.slow
def test_a_run_that_is_named_is_of_the_commit_that_is_named(project: Project) -> None:
    """And what is wrong with the choice itself needs no pod to be said."""
    commit(project).touch()
    (run_id, of) = (finish(validate(project)).json[key] for key in ("run_id", "commit"))
    project.commit({"README.md": "another commit\n"})
    assert project.here("fetch", "--pod", "local", "--commit", of[:8], "--json", run_id).exit_code == 0
    other_commit = project.here("fetch", "--pod", "local", "--commit", "HEAD", "--json", run_id)
    assert other_commit.exit_code == 4 and f"is of commit {of[:7]}, not of " in other_commit.json["error"]
    with_pod(project, transport="ssh", host="127.0.0.1", port=1)
    for chosen in (["--commit", "no-such"], ["--repo", "/"]):
        outcome = project.here("fetch", "--pod", "local", "--json", *chosen)
        assert outcome.exit_code == 2, outcome.stderr


def test_a_run_that_ends_before_it_can_be_cancelled_is_not_called_cancelled() -> None:
    agent = SimpleNamespace(
        runs=lambda: [{"run_id": "r", "state": "running"}],
        run_directory=lambda run_id: f"/w/runs/{run_id}",
        call=lambda shape, *command: {"signalled": False, "within": 0.0},
    )
    session = cast(PodSession, SimpleNamespace(open=lambda: nullcontext(agent), pod=SimpleNamespace(name="p")))
    with pytest.raises(PodError, match="run r ended before it could be cancelled"):
        cancel(session, "r", Path())


@pytest.mark.parametrize(
    ("running", "run", "sentence"),
    [
        ([], None, "pod 'p': no run is running there"),
        ([], "x", "pod 'p': run x is not running there, nor is any other"),
        (["r1", "r2"], None, "pod 'p': expected one of the runs that are running there, r1, r2"),
        (["r1"], "x", "pod 'p': expected one of the runs that are running there, r1, got x"),
    ],
)
def test_it_is_said_which_runs_could_be_cancelled(running: list[str], run: str | None, sentence: str) -> None:
    agent = SimpleNamespace(runs=lambda: [{"run_id": run_id, "state": "running"} for run_id in running])
    session = cast(PodSession, SimpleNamespace(open=lambda: nullcontext(agent), pod=SimpleNamespace(name="p")))
    with pytest.raises(PodError) as caught:
        cancel(session, run, Path())
    assert str(caught.value) == sentence


def relax(plan: dict[str, Any]) -> dict[str, Any]:
    return {**plan, "stages": plan["stages"][:1]}


def lead_out(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan that hashes to its run id, and would be kept outside of the artifacts."""
    led = {**plan, "commit": "../../../../out"}
    return {**led, "run_id": plan["run_id"][:-8] + plan_hash(led)[:8]}


def test_a_plan_that_was_changed_on_the_pod_is_refused(project: Project, other: Project) -> None:
    commit(project).touch()
    clone(project, other)
    assert finish(validate(project)).json["verdict"] == "passed"
    (run_id,) = run_ids(project)
    for change, sentence in ((relax, "its content is not what run"), (lead_out, "is not the name of a git object")):
        directory = project.root.parent / "workdir" / "runs" / run_ids(project)[0]
        changed = change(json.loads((directory / "plan.json").read_text()))
        (directory / "plan.json").write_text(json.dumps(changed))
        directory.rename(directory.with_name(changed["run_id"]))
        outcome = other.here("fetch", "--pod", "local", "--json", changed["run_id"])
        assert (outcome.exit_code, outcome.json["verdict"]) == (4, "error") and sentence in outcome.json["error"]
        assert not (other.root / "artifacts").exists() and not list(other.root.parent.rglob("out"))
    launched = project.here("report", "--json", run_id).json
    assert (launched["verdict"], launched["plan_from"]) == ("passed", "laptop")
    kept = project.root / launched["path"]
    renamed = kept.rename(kept.with_name("monday"))
    assert project.here("report", "--json", str(renamed)).json["plan_from"] == "laptop"
    renamed.rename(kept)

    record = project.home / "runs" / f"{run_id}.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "plan_sha256": "0" * 64}))
    swapped = project.here("report", "--json", run_id).json
    assert swapped["plan_from"] == "pod" and FROM_POD in swapped["summary"], (
        "a plan here that was not launched from here"
    )
