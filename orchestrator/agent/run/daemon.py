"""The agent of a run as a daemon, which no connection holds: started, told of, asked to stop."""

from __future__ import annotations

import json
import os
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional

from orchestrator.agent import lock
from orchestrator.agent.holds import Hold
from orchestrator.agent.host import processes
from orchestrator.agent.host.reaper import end_marked
from orchestrator.agent.layout import CANCEL_FILE
from orchestrator.agent.run import run
from orchestrator.agent.run.secret_values import Values
from orchestrator.agent.runs import living_agent
from orchestrator.shared import disk
from orchestrator.shared import plan as plans
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import write_atomically

_STOPPING_S = 20.0
_REAPED_S = 5.0


@dataclass(frozen=True)
class Arrival:
    """What is done when the run has the pod: the laptop's `hold` is but on the run then, and what is more than
    `max_disk` bytes goes."""

    hold: Hold
    max_disk: Optional[int]

    def settle(self, run_dir: Path) -> Optional[Mapping[str, Any]]:
        """What was tidied."""
        self.hold.exchange(f"runs/{run_dir.name}")
        if self.max_disk is None:
            return None
        from orchestrator.agent.tidy import tidy

        return tidy.keep_under(run_dir.parent.parent, self.max_disk)


def start(run_dir: Path, secrets: Values, resumed_by: str | None, arrival: Arrival) -> Mapping[str, Any]:
    """Start it; {"pid", "run_id", "dead", "tidied"} once it holds the pod's lock, {"error", ...} where it cannot."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _detach(run_dir, write_end, secrets, resumed_by, arrival)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.readline()
    if not answer:
        raise Failure(f"the agent ended as it started: see {run_dir / 'agent.log'}")
    told: Mapping[str, Any] = json.loads(answer)
    return told


def cancel(run_dir: Path, by: str, stolen: bool) -> Optional[float]:
    """Ask it to stop, in the name of `by`, also one that was stopped.

    In how many seconds it has, if it works; None when there is none any more.
    """
    pid = living_agent(run_dir)
    if pid is None:
        return None
    write_atomically(run_dir / CANCEL_FILE, json.dumps({"by": by, "stolen": stolen}))
    try:
        for signum in (signal.SIGTERM, signal.SIGCONT):
            os.kill(pid, signum)
    except ProcessLookupError:  # it has just ended
        return None
    return _longest_grace(run_dir) + _STOPPING_S


def _longest_grace(run_dir: Path) -> float:
    try:
        return max((stage["limits"]["grace"] for stage in plans.load(run_dir)["stages"]), default=0.0)
    except Failure:  # its plan was removed or damaged: it is ended all the same
        return 0.0


def end(run_dir: Path) -> bool:
    """Kill the run's agent, which did not stop, and all that is of the run; whether the pod is free of it."""
    pid = living_agent(run_dir)
    if pid is not None:
        processes.send(signal.SIGKILL, [pid])
    workdir = run_dir.parent.parent
    if lock.wait(workdir, _REAPED_S) is not None:  # its reaper ends the rest, if that works
        processes.send(signal.SIGKILL, processes.started_as("launch", str(run_dir)))
    end_marked(run_dir.name)
    found = lock.wait(workdir, _REAPED_S)
    return found is None or found.get("run_id") != run_dir.name


def _detach(run_dir: Path, report: int, secrets: Values, resumed_by: str | None, arrival: Arrival) -> None:
    """In the child: become a daemon that runs the plan. Never returns."""
    code = 1
    try:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            _run_reporting(run_dir, report, secrets, resumed_by, arrival)
        code = 0
    finally:
        os._exit(code)


def _run_reporting(run_dir: Path, report: int, secrets: Values, resumed_by: str | None, arrival: Arrival) -> None:
    """Run the plan; tell the launcher through `report` that it began, or why not."""
    answered = False

    def answer(said: Mapping[str, Any]) -> None:
        nonlocal answered
        if not answered:
            os.write(report, json.dumps(said).encode() + b"\n")
            os.close(report)
            answered = True

    def began(dead: Optional[Mapping[str, Any]]) -> None:
        tidied = arrival.settle(run_dir)
        answer({"pid": os.getpid(), "run_id": run_dir.name, "dead": dead, **({"tidied": tidied} if tidied else {})})

    try:
        _redirect(run_dir / "agent.log")
        run.execute(run_dir, began, secrets, resumed_by)
    except lock.Busy as e:
        answer({"error": str(e), "busy": e.holder})
    except Failure as e:
        answer({"error": str(e)})
    except BaseException as e:
        said = disk.told(e, run_dir) if isinstance(e, OSError) else str(e)
        answer({"error": f"the agent cannot start: {said}"})
        traceback.print_exc()  # into agent.log: the journal may not be there
        raise


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
