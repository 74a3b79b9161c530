"""What a stage writes: from the copy here if it has come home, else from the pod, also while the stage runs."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from orchestrator.errors import InputError, PodError
from orchestrator.pod.client import Agent
from orchestrator.pod.retry import while_it_runs
from orchestrator.pod.session import PodSession
from orchestrator.results import read_events
from orchestrator.store import launches
from orchestrator.store.run_directory import LATEST, RunDirectory, find, kept, open_directory
from orchestrator.tasks.follow import called
from orchestrator.text import nearest, plain

Stream = Literal["stdout", "stderr"]
Sink = Callable[[bytes], object]
Sinks = Mapping[Stream, Sink]

_WAIT_S = 5.0
_PIECE = 1 << 16


@dataclass(frozen=True)
class Wanted:
    """Which stream of which stage of which run: a run id or its beginning; of those here also a directory, "latest"."""

    run: str
    stage: str
    stream: Stream
    follow: bool = False


def run_here(artifacts: Path, repo: Path, name: str) -> RunDirectory | None:
    """The run, if this laptop launched it or keeps it."""
    launch = None if name == LATEST else launches.launch_of(name)
    if launch and Path(launch.directory, "plan.json").exists():
        return open_directory(Path(launch.directory), repo)
    named_otherwise = name == LATEST or os.path.isdir(name)
    is_here = named_otherwise or any(run.path.name.startswith(name) for run in kept(artifacts, repo))
    return find(artifacts, repo, name) if is_here else None


def show_here(run: RunDirectory, wanted: Wanted, out: Sink) -> bool:
    """Write the copy that lies here; False if there is none, so that the pod is to be asked.

    InputError for a stage that the run does not have, PodError for one that ended without having begun.
    """
    known = [stage["name"] for stage in run.plan()["stages"]]
    if wanted.stage not in known:
        raise InputError(f"run {run.path.name} has no stage {wanted.stage!r}{nearest(wanted.stage, known)}")
    file = run.path / "stages" / wanted.stage / wanted.stream
    if not file.is_file():
        _refuse_never_begun(run, wanted.stage)
        return False
    with file.open("rb") as f:
        for piece in iter(lambda: f.read(_PIECE), b""):
            out(piece)
    return True


def show(session: PodSession, wanted: Wanted, out: Sink) -> None:
    """Write what the pod has of it; to follow, until the stage has ended. PodError for one that ended without having
    begun.
    """
    with session.open() as agent:
        run_id = called(wanted.run, agent.runs(wanted.run), session.pod.name)["run_id"]
        session.progress.still()
        reading = Reading(run_id, wanted.stage, {wanted.stream: out})
        if wanted.follow:
            reading.to_end(session, agent)
        else:
            reading.what_is_there(agent)
    if reading.never_begun is not None:
        raise _did_not_run(wanted.stage, run_id, reading.never_begun)


@dataclass
class Reading:
    """A stage's streams as they come, each given to its sink; `never_begun` says why one that ended has none."""

    run_id: str
    stage: str
    sinks: Sinks
    never_begun: str | None = field(default=None, init=False)
    _offsets: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._offsets.update(dict.fromkeys(self.sinks, 0))

    def to_end(self, session: PodSession, agent: Agent) -> None:
        """Until the stage has ended, over new connections should one break."""
        retry = while_it_runs(session.open, session.progress, session.pod.name, self.run_id)

        def read(there: Agent) -> None:
            while not self._read_on(there, _WAIT_S):
                retry.advance()

        retry.until_done(read, agent)

    def what_is_there(self, agent: Agent) -> None:
        """What has been written until now."""
        while True:
            before = dict(self._offsets)
            if self._read_on(agent, 0.0) or self._offsets == before:
                return

    def _read_on(self, agent: Agent, wait: float) -> bool:
        """Take the next pieces; whether no more will come."""
        told = agent.log(self.run_id, self.stage, self._offsets, wait)
        self.never_begun = told["reason"]
        for stream, sink in self.sinks.items():
            piece = base64.b64decode(told[stream])
            if piece:
                sink(piece)
                self._offsets[stream] += len(piece)
        return told["ended"]


def _refuse_never_begun(run: RunDirectory, stage: str) -> None:
    events = read_events(run.path)
    own = {event["event"]: event for event in events if event.get("stage") == stage}
    if "stage_started" in own:
        return
    if "stage_ended" in own:
        raise _did_not_run(stage, run.path.name, str(own["stage_ended"].get("reason")))
    if any(event["event"] == "run_ended" for event in events):
        raise _did_not_run(stage, run.path.name, "the run ended before it")


def _did_not_run(stage: str, run_id: str, reason: str) -> PodError:
    return PodError(f"stage {stage!r} of run {run_id} did not run: {plain(reason)}")
