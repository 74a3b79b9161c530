"""Ends that are ends: of agents that are stopped or wedged, and of what runs that died have left running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from orchestrator.agent.host import processes
from orchestrator.agent.injected.stage import MARK
from orchestrator.agent.run import leftovers
from orchestrator.results.judge import _strays
from tests.support import proc
from tests.support.agent_pod import Pod, said
from tests.support.waiting import wait_for

pytestmark = pytest.mark.process


def reapers(agent: int) -> list[int]:
    """The agent's helper, which is no stage of its."""
    below = subprocess.run(["pgrep", "-P", str(agent)], capture_output=True, text=True).stdout.split()
    return [pid for pid in map(int, below) if proc.command(pid) == proc.command(agent)]


def test_a_stopped_agent_is_cancelled(pod: Pod) -> None:
    run = pod.launch({}, [said("sleeps", ["sleep", "60"])])
    agent = run.wait_for("run_started")["pid"]
    run.wait_for("stage_started")
    os.kill(agent, signal.SIGSTOP)
    began = time.monotonic()
    asked = pod.ask("cancel", str(run.path), "--by", "me@desk")
    assert asked["signalled"] and 0 < asked["within"] < 60
    run.wait()
    assert run.ending == "cancelled" and time.monotonic() - began < 60


def test_a_stopped_reaper_does_not_keep_the_pod(pod: Pod) -> None:
    seconds = f"2.{os.getpid()}"
    run = pod.launch({}, [said("s", ["sleep", seconds])])
    wait_for(lambda: proc.sleeping(seconds))  # until then the stage's process looks like another helper
    helpers = reapers(run.wait_for("run_started")["pid"])
    assert helpers
    processes.send(signal.SIGSTOP, helpers)
    run.wait()
    assert pod.ask("holder", str(pod.workdir))["holder"] is None


@pytest.mark.parametrize("reaper", ["works", "is stopped"])
def test_an_agent_that_does_not_stop_is_killed_with_all_that_is_its(pod: Pod, reaper: str) -> None:
    seconds = proc.a_sleep()
    run = pod.launch({}, [said("s", ["sh", "-c", f"setsid sleep {seconds} & sleep {seconds}"])])
    agent = run.wait_for("run_started")["pid"]
    wait_for(lambda: len(proc.saying(seconds)) >= 2)
    processes.send(signal.SIGSTOP, [agent, *(reapers(agent) if reaper == "is stopped" else [])])
    assert pod.ask("end", str(run.path)) == {"ended": True}
    assert not proc.saying(seconds) and pod.ask("holder", str(pod.workdir))["holder"] is None
    assert pod.run({}, said("next", ["echo", "1"])).only().status == "passed"


def test_what_a_dead_run_left_is_ended_before_the_next_begins(pod: Pod) -> None:
    """Agent and reaper were killed at once: a child in a session of its own would write into the next, green run."""
    seconds = proc.a_sleep()
    run = pod.launch({}, [said("s", ["sh", "-c", f"setsid sleep {seconds} & sleep {seconds}"])])
    agent = run.wait_for("run_started")["pid"]
    wait_for(lambda: len(proc.saying(seconds)) >= 2)
    helpers = reapers(agent)
    processes.send(signal.SIGSTOP, helpers)
    processes.send(signal.SIGKILL, [agent, *helpers])
    wait_for(lambda: proc.saying(seconds), "the child in its own session")
    following = pod.run({}, said("next", ["echo", "1"]))
    assert following.only().status == "passed" and not proc.saying(seconds)
    [told] = [event for event in following.events if event["event"] == "leftovers_ended"]
    assert {found["run"] for found in told["ended"]} == {run.run_id} and told["left"] == []


@pytest.fixture
def left_by(tmp_path: Path) -> dict[str, str]:
    """The surroundings of a process that a run of this workdir left, whose name no test beside this one has."""
    name = uuid.uuid4().hex
    (tmp_path / "runs" / name).mkdir(parents=True)
    return {**os.environ, MARK: name}


def test_processes_of_other_workdirs_are_left_alone(tmp_path: Path, left_by: dict[str, str]) -> None:
    with (
        subprocess.Popen(["sleep", "60"], env=left_by) as mine,
        subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "theirs"}) as theirs,
    ):
        wait_for(lambda: {mine.pid, theirs.pid} <= processes.all_marked().keys())
        found = leftovers.end(tmp_path)
        assert [x["pid"] for x in found.ended] == [mine.pid] and found.left == []
        assert theirs.poll() is None
        theirs.kill()


def test_one_that_cannot_be_ended_is_told_of(
    tmp_path: Path, left_by: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(processes, "send", lambda signum, pids: None)
    with subprocess.Popen(["sleep", "60"], env=left_by) as process:
        wait_for(lambda: process.pid in processes.all_marked())
        found = leftovers.end(tmp_path)
        process.kill()
    assert [x["pid"] for x in found.left] == [process.pid] and found.tell
    assert _strays([found.event()]) == "1 of an earlier run's processes could not be ended"
    by_group = leftovers.Leftovers([], [], known_by_mark=False)
    assert by_group.tell and _strays([by_group.event()]) == "processes were known by their group only"
    assert _strays([leftovers.Leftovers([{"pid": 1}], []).event()]) == ""
