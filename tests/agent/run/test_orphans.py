"""What an agent started dies with it, also when the agent is killed while a process is between fork and exec."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from orchestrator.agent.host import processes, reaper
from orchestrator.agent.injected.stage import MARK
from tests.support import proc
from tests.support.waiting import wait_for

pytestmark = pytest.mark.process
# The child goes on to its exec only once its parent, which waits for that exec, is gone.
PARENT = """
import os, subprocess
from orchestrator.agent.host import processes
from orchestrator.agent.run import supervise
from orchestrator.agent.host import telemetry
parent, prepare = os.getpid(), {prepare}()
def before_exec():
    {first}
    print(os.getpid(), flush=True)
    while os.getppid() == parent:
        pass
    {then}
subprocess.Popen(["sleep", "60"], preexec_fn=before_exec)
"""


@pytest.mark.parametrize(("first", "then"), [("prepare()", "pass"), ("pass", "prepare()")])
@pytest.mark.parametrize("prepare", ["processes.ending_with_parent", "supervise._as_stage", "telemetry._as_helper"])
def test_a_parent_killed_before_its_child_has_become_another_program(prepare: str, first: str, then: str) -> None:
    code = PARENT.format(prepare=prepare, first=first, then=then)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    wait_for(lambda: not proc.is_alive(child), "the child's end", 5)


def test_a_process_that_shows_its_mark_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = processes.marked
    looks = 0

    def hidden_at_first(run_id: str) -> list[int]:
        nonlocal looks
        looks += 1
        return marked(run_id) if looks > 1 else []

    late = f"late-{os.getpid()}"
    monkeypatch.setattr(processes, "marked", hidden_at_first)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: late}) as process:
        try:
            reaper.end_marked(late)
            assert process.wait(5) == -signal.SIGKILL
        finally:
            process.kill()
