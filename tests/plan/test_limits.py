"""Limits of a whole run: kept by the agent, whoever still looks, with all that ran until then; and the estimate."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod as InventoryPod
from orchestrator.errors import InputError
from orchestrator.plan.limits import History, describe, duration, estimate, run_limit
from orchestrator.shared.plan import RunLimit
from tests.support.agent_pod import Pod, said
from tests.support.gated_run import commit, events, finish, run_ids, validate
from tests.support.plans import plan_of
from tests.support.project import Project
from tests.support.waiting import wait_for

PRICED = InventoryPod(name="p", transport="local", cost_per_hour=0.5)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1h30m", 5400), ("2700", 2700), ("45s", 45), ("1.5h", 5400), ("1h0m5s", 3605), (" 2h ", 7200)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "90x", "m", "1m1h", "nan", "inf", "1e3", "9" * 400, "1:30"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InputError, match="expected a duration such as 90m"):
        duration(text)


def test_the_tighter_limit_counts() -> None:
    limit = run_limit(PRICED, "2h", 0.5)
    assert limit == RunLimit(given="--max-cost 0.5 (at 0.5 an hour)", seconds=3600, spent=0)
    assert run_limit(PRICED, "10m", 0.5) == RunLimit(given="--max-time 10m", seconds=600, spent=0)
    assert run_limit(PRICED, None, None) is None


@pytest.mark.parametrize("price", [None, 0.0])
def test_a_cost_needs_a_price(price: float | None) -> None:
    with pytest.raises(InputError, match="expected its cost_per_hour"):
        run_limit(InventoryPod(name="p", transport="local", cost_per_hour=price), None, 1.0)


@pytest.mark.parametrize("cost", [0.0, -1.0, float("nan"), float("inf"), 1e308])
def test_a_cost_is_an_amount(cost: float) -> None:
    with pytest.raises(InputError, match="expected an amount above 0"):
        run_limit(PRICED, None, cost)


def test_the_estimate_is_by_earlier_runs_and_else_by_limits() -> None:
    stages = plan_of()["stages"]
    pytest_, absent = ((stage["name"], tuple(stage["argv"])) for stage in stages)
    unknown = estimate(stages, History(), None)
    assert (unknown["seconds"], unknown["cost"], unknown["by_limit"]) == (7200, None, ["cpu", "absent"])
    assert "at most 2 h 00 min, by their limits" in describe(unknown, 2, None)
    half = estimate(stages, History(2, {pytest_: [10.0, 30.0]}), 0.5)
    assert (half["seconds"], half["by_limit"]) == (3620, ["absent"]) and half["cost"] == pytest.approx(
        3620 / 7200, abs=1e-4
    )
    assert "1 stage by 2 earlier runs on this pod, 1 by their limits" in describe(half, 2, None)
    assert "1 h 00 min (0.5028 by its cost_per_hour)" in describe(half, 2, None)
    known = estimate(stages, History(3, {pytest_: [10.0], absent: [1.0, 2.0, 30.0]}), None)
    assert known["seconds"] == 12 and known["by_limit"] == []
    assert "about 12.0 s, by 3 earlier runs" in describe(known, 2, None)
    other_command = estimate(stages, History(1, {("cpu", ("python",)): [1.0]}), None)
    assert other_command["by_limit"] == ["cpu", "absent"]


def test_the_agent_ends_the_run_at_its_limit(pod: Pod) -> None:
    """The stage that runs is ended with all its processes; the rest is not run; what ran is kept."""
    daemon = said("sleeps", ["sh", "-c", "setsid sleep 4343 & sleep 4343"], limits={"grace": 1.0})
    stages = [said("first", ["echo", "1"]), daemon, said("last", ["echo", "3"])]
    limit = {"given": "--max-time 5s", "seconds": 5.0, "spent": 3.0}
    run = pod.run({}, *stages, limit=limit)
    judged = run.judge()
    assert {name: j.status for name, j in judged.items()} == {"first": "passed", "sleeps": "cancelled"}
    assert "limit that was set for the whole run" in judged["sleeps"].reason
    (reached,) = [e for e in run.events if e["event"] == "limit_reached"]
    assert reached["limit"] == "--max-time 5s" and 2.0 <= reached["seconds"] < 20 and run.ending == "limit reached"
    assert run.text("artifacts/first.txt") == "1\n"
    assert not subprocess.run(["pgrep", "-f", "sleep 4343"], capture_output=True).stdout


def test_a_limit_that_was_spent_before_the_launch_runs_nothing(pod: Pod) -> None:
    run = pod.run({}, said("s", ["echo", "1"]), limit={"given": "--max-time 5s", "seconds": 5.0, "spent": 5.5})
    assert run.ending == "limit reached" and not run.records


def test_a_run_within_its_limit_knows_nothing_of_it(pod: Pod) -> None:
    run = pod.run({}, said("s", ["echo", "1"]), limit={"given": "--max-time 60s", "seconds": 60.0, "spent": 0.0})
    assert run.ending == "completed" and run.only().status == "passed"


def test_the_limit_is_kept_without_the_laptop(project: Project) -> None:
    commit(project)
    process = validate(project, "--max-time", "8s")
    wait_for(lambda: any(e["event"] == "run_started" for e in events(project)))
    (run_id,) = run_ids(project)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    outcome = project.run("fetch", "--pod", "local", "--json")
    result = outcome.json
    assert (outcome.exit_code, result["verdict"], result["run_id"]) == (3, "incomplete", run_id)
    assert [s["status"] for s in result["stages"]] in (
        ["passed", "cancelled", "not_run"],
        ["not_run", "not_run", "not_run"],  # a machine that is so busy that bringing the tree took it all
    )
    assert result["stages"][2]["reason"] == "the run ended before it: its limit was reached: --max-time 8s"
    assert result["ended_early"] in result["summary"] and "--max-time 8s" in result["summary"]
    assert project.run("report", "--json").json == result


def test_the_estimate_is_shown_before_the_start(project: Project) -> None:
    commit(project).touch()
    first = finish(validate(project))
    assert first.exit_code == 0 and "at most 15 min 00 s, by their limits" in first.stderr
    second = finish(validate(project, "--max-time", "1h"))
    assert "by 1 earlier run on this pod; the run is ended at --max-time 1h" in second.stderr
    dry = project.run("validate", "--pod", "local", "--runbook", "r", "--dry-run")
    assert dry.json["estimate"]["runs"] == 2 and dry.json["estimate"]["by_limit"] == []
    assert 0 < dry.json["estimate"]["seconds"] < 60 and "by 2 earlier runs" in dry.stderr
    assert second.json["verdict"] == "passed" and "ended_early" not in second.json


def test_a_damaged_result_only_misses_in_the_estimate(project: Project) -> None:
    commit(project).touch()
    kept = project.root / finish(validate(project)).json["path"]
    for name in ("result.json", "plan.json"):
        (kept / name).write_bytes(b"\xff" + (kept / name).read_bytes())
        dry = project.run("validate", "--pod", "local", "--runbook", "r", "--dry-run")
        assert dry.exit_code == 0 and dry.json["estimate"]["runs"] == 0, dry.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--max-cost", "1"], "pod 'local' has no price: expected its cost_per_hour"),
        (["--max-time", "soon"], "expected a duration such as 90m"),
        (["--wait", "--steal"], "expected --wait or --steal, not both"),
        (["--resume", "--max-time", "1h"], "expected no --max-time"),
    ],
)
def test_options_that_cannot_be_are_bad_input(project: Project, arguments: list[str], sentence: str) -> None:
    commit(project)
    outcome = finish(validate(project, *arguments))
    assert outcome.exit_code == 2 and sentence in outcome.json["error"]
    assert not Path(project.root / "artifacts").exists()
