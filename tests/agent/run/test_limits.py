"""Limits of a whole run: kept by the agent, whoever still looks, with all that ran until then."""

from __future__ import annotations

import signal

from tests.support import proc
from tests.support.agent_pod import Pod, said
from tests.support.gated_run import commit, events, run_ids, validate
from tests.support.project import Project
from tests.support.waiting import wait_for


def test_the_agent_ends_the_run_at_its_limit(pod: Pod) -> None:
    """The stage that runs is ended with all its processes; the rest is not run; what ran is kept."""
    seconds = proc.a_sleep()
    daemon = said("sleeps", ["sh", "-c", f"setsid sleep {seconds} & sleep {seconds}"], limits={"grace": 1.0})
    stages = [said("first", ["echo", "1"]), daemon, said("last", ["echo", "3"])]
    limit = {"given": "--max-time 5s", "seconds": 5.0, "spent": 3.0}
    run = pod.run({}, *stages, limit=limit)
    judged = run.judge()
    assert {name: j.status for name, j in judged.items()} == {"first": "passed", "sleeps": "cancelled"}
    assert "limit that was set for the whole run" in judged["sleeps"].reason
    (reached,) = [e for e in run.events if e["event"] == "limit_reached"]
    assert reached["limit"] == "--max-time 5s" and 2.0 <= reached["seconds"] < 20 and run.ending == "limit reached"
    assert run.text("artifacts/first.txt") == "1\n"
    assert not proc.saying(seconds)


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
    outcome = project.here("fetch", "--pod", "local", "--json")
    result = outcome.json
    assert (outcome.exit_code, result["verdict"], result["run_id"]) == (3, "incomplete", run_id)
    assert [s["status"] for s in result["stages"]] in (
        ["passed", "cancelled", "not_run"],
        ["not_run", "not_run", "not_run"],  # a machine that is so busy that bringing the tree took it all
    )
    assert result["stages"][2]["reason"] == "the run ended before it: its limit was reached: --max-time 8s"
    assert result["ended_early"] in result["summary"] and "--max-time 8s" in result["summary"]
    assert project.here("report", "--json").json == result
