"""One run at a time on a pod: waiting for it, taking it, following what runs there already, holders that died."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest

from orchestrator.agent.lock import Busy, Lock, holder
from orchestrator.shared.locks import opened, take
from tests.support import ROOT, proc
from tests.support.agent_pod import Pod, said
from tests.support.gated_run import clone, commit, events, finish, validate, wait_until_waiting
from tests.support.project import Outcome, Project
from tests.support.waiting import wait_for

SLEEP = said("sleeps", ["sleep", "30"])


def kill_all(pod: Pod, run_dir: Path) -> None:
    """As a machine that goes down: the agent, its helper and its stage, with the lock as they leave it."""
    pid = json.loads((pod.workdir / "lock").read_text())["pid"]
    below = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    for victim in (pid, *map(int, below)):
        os.kill(victim, signal.SIGKILL)
    wait_for(lambda: pod.ask("holder", str(pod.workdir))["holder"] is None)


def test_the_lock_says_which_boot_it_is_of(pod: Pod) -> None:
    run = pod.launch({}, [SLEEP])
    holder = pod.ask("holder", str(pod.workdir))["holder"]
    assert holder["run_id"] == run.run_id and holder["holder"] == "user@laptop" and holder["dead"] is False
    assert holder["boot_id"] == pod.ask("probe", "--workdir", str(pod.workdir))["boot_id"]
    pod.ask("cancel", str(run.path))
    assert pod.ask("holder", str(pod.workdir), "--wait", "20") == {"holder": None}
    assert (pod.workdir / "lock").read_text() == ""


def test_waiting_for_a_holder_gives_up_in_time(pod: Pod) -> None:
    run = pod.launch({}, [SLEEP])
    began = time.monotonic()
    assert pod.ask("holder", str(pod.workdir), "--wait", "0.5")["holder"]["run_id"] == run.run_id
    assert 0.5 <= time.monotonic() - began < 10
    pod.ask("cancel", str(run.path))
    run.wait()


def test_a_lock_that_says_nothing_is_waited_for(tmp_path: Path) -> None:
    """As the reaper has it, after an agent that failed and let it go."""
    fd = opened(tmp_path / "lock")
    assert take(fd, 0.0)
    Timer(0.4, os.close, [fd]).start()
    Lock(tmp_path, {"holder": "next"}).release()


def test_who_has_just_taken_the_lock_is_named(tmp_path: Path) -> None:
    fd = opened(tmp_path / "lock")
    assert take(fd, 0.0)
    Timer(0.4, os.write, [fd, b'{"holder": "first"}']).start()
    with pytest.raises(Busy, match="held by first"):
        Lock(tmp_path, {"holder": "next"})
    os.close(fd)


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_holder_that_died_is_told_of(pod: Pod, rebooted: bool) -> None:
    """After a power failure nobody holds the kernel's lock, and what is written in its file is of another boot."""
    first = pod.launch({}, [SLEEP])
    first.wait_for("stage_started")
    kill_all(pod, first.path)
    if rebooted:
        lock = pod.workdir / "lock"
        lock.write_text(json.dumps({**json.loads(lock.read_text()), "boot_id": "0" * 36, "pid": os.getpid()}))
    second = pod.prepare({}, [said("s", ["echo", "1"])])
    dead = pod.ask("launch", str(second.path))["dead"]
    assert (dead["run_id"], dead["holder"], dead["rebooted"]) == (first.run_id, "user@laptop", rebooted)
    assert second.wait().only().status == "passed"
    assert pod.ask("status", str(first.path))["state"] == "lost"


def test_a_killed_agents_lock_is_had_as_soon_as_its_processes_are_gone(pod: Pod) -> None:
    """No moment in which the next launch is refused for a dead run."""
    seconds = proc.a_sleep()
    first = pod.launch({}, [said("s", ["sh", "-c", f"setsid sleep {seconds} & sleep {seconds}"])])
    first.wait_for("stage_started")
    second = pod.prepare({}, [said("s", ["echo", "1"])])
    os.kill(first.wait_for("run_started")["pid"], signal.SIGKILL)
    assert pod.ask("launch", str(second.path))["dead"]["run_id"] == first.run_id
    assert second.wait().only().status == "passed"
    assert not proc.saying(seconds)


def test_cancel_tells_that_the_pod_was_taken(pod: Pod) -> None:
    run = pod.launch({}, [SLEEP])
    run.wait_for("stage_started")
    pod.ask("cancel", str(run.path), "--by", "you@desk", "--stolen")
    (cancelled,) = [e for e in run.wait().events if e["event"] == "cancelled"]
    assert (cancelled["by"], cancelled["stolen"]) == ("you@desk", True)


def test_a_held_pod_is_refused_with_the_ways_on(project: Project, other: Project) -> None:
    """And a run that does the same is named as such."""
    gate = commit(project)
    clone(project, other)
    first = validate(project)
    run_id = wait_until_waiting(project)
    same, limited = (finish(validate(other, *more)) for more in ((), ("--max-time", "1h")))
    project.commit({"README.md": "another commit\n"})
    another = finish(validate(project))
    gate.touch()
    assert finish(first).json["verdict"] == "passed"
    for refused in (same, limited, another):
        assert refused.exit_code == 4
        for part in (run_id, f"nsa-pod follow --pod local {run_id}", "--wait", "--steal", "@"):
            assert part in refused.json["error"]
    told = ["runs this very commit and runbook" in refused.json["error"] for refused in (same, limited, another)]
    assert told == [True, False, False]


@pytest.mark.slow
def test_wait_queues_and_says_who_holds_the_pod(project: Project) -> None:
    gate = commit(project)
    first = validate(project)
    run_id = wait_until_waiting(project)
    second = validate(project, "--wait")
    assert second.stderr is not None
    said_first = next(line for line in second.stderr if line.startswith("waiting"))  # after what was asked for
    assert said_first.startswith("waiting for pod 'local': held by ") and run_id in said_first
    gate.touch()
    assert finish(first).json["verdict"] == "passed"
    outcome = finish(second)
    assert outcome.exit_code == 0 and outcome.json["run_id"] != run_id, outcome.stderr


@pytest.mark.slow
def test_steal_cancels_the_holder_and_says_by_whom(project: Project, other: Project) -> None:
    gate = commit(project)
    clone(project, other)
    first = validate(project)
    run_id = wait_until_waiting(project)
    second = validate(other, "--steal")
    victim = finish(first)
    assert victim.exit_code == 3 and victim.json["verdict"] == "incomplete"
    assert "the pod was taken from it by " in victim.json["ended_early"]
    assert [s["status"] for s in victim.json["stages"]] == ["passed", "cancelled", "not_run"]
    (cancelled,) = [e for e in events(project) if e["event"] == "cancelled"]
    assert cancelled["stolen"] is True and cancelled["by"] in victim.json["summary"]
    wait_until_waiting(project, runs=2)
    gate.touch()
    thief = finish(second)
    assert thief.exit_code == 0 and thief.json["run_id"] != run_id, thief.stderr
    assert "taking pod 'local' from " in thief.stderr and run_id in thief.stderr


@pytest.mark.slow
def test_on_a_terminal_it_is_offered_to_follow_the_same_run(project: Project, other: Project) -> None:
    gate = commit(project)
    clone(project, other)
    first = validate(project)
    run_id = wait_until_waiting(project)
    ours, theirs = pty.openpty()
    command = ["validate", "--pod", "local", "--runbook", "r", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *command],
        cwd=other.root,
        env=other.environment(PYTHONPATH=str(ROOT)),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as second:
        os.write(ours, b"y\n")
        wait_for(lambda: any((other.root / "artifacts").glob("runner/*/*/journal.jsonl")))
        gate.touch()
        stdout, stderr = second.communicate(timeout=150)
    for fd in (ours, theirs):
        os.close(fd)
    assert finish(first).json["verdict"] == "passed"
    outcome = Outcome(second.returncode, stdout, stderr)
    assert "follow that run?" in stderr and outcome.exit_code == 0
    assert (outcome.json["run_id"], outcome.json["plan_from"]) == (run_id, "pod")
    assert "follow that run?" not in stdout


STRANGER = """
import fcntl, os, sys, time
f = open(sys.argv[1], "a")
os.setuid(12345)
fcntl.flock(f, fcntl.LOCK_EX)
print("holds", flush=True)
time.sleep(120)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_stranger_with_the_lock_blocks_nobody(pod: Pod) -> None:
    """As one who had opened the file while the workdir was still open to all."""
    lock = pod.workdir / "lock"
    stranger = subprocess.Popen([sys.executable, "-c", STRANGER, str(lock)], stdout=subprocess.PIPE)
    try:
        assert stranger.stdout is not None and stranger.stdout.readline() == b"holds\n"
        assert pod.ask("holder", str(pod.workdir)) == {"holder": None}
        run = pod.launch({}, [said("says", ["true"])])
        run.wait()
        wait_for(lambda: (pod.workdir / "lock").read_text() == "", "the end of the hold")
    finally:
        stranger.kill()
        stranger.wait()


def test_what_is_no_file_in_the_locks_place_is_a_sentence_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(OSError, match="a lock was expected"):
        Lock(tmp_path, {})
    assert holder(tmp_path) is None
