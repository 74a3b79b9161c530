"""Follow a run to its end: the journal as it grows, each stage's files as it ends, reconnecting by itself."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import CommandTimeout, ContactLost, IntegrityError, Interrupted, Unreachable
from orchestrator.results import State
from orchestrator.rundir import RunDirectory
from orchestrator.tasks.fetch import missing_files, pull
from orchestrator.tasks.probe import Agent
from orchestrator.ui import Progress

Connect = Callable[[], AbstractContextManager[Agent]]
Event = Mapping[str, Any]

_POLL_S = 5.0
_CHUNK_BYTES = 4 << 20
# How long a pod may be out of reach before following ends with an error; the run itself goes on.
GIVE_UP_S = 900.0
_RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass
class Follower:
    """Follows one run; `refused` collects what the pod was not allowed to send."""

    connect: Connect
    run: RunDirectory
    progress: Progress
    wait: bool = True
    refused: list[str] = field(default_factory=list)

    def follow(self, agent: Agent | None = None) -> State:
        """Bring home all there is and, with `wait`, what comes until the run ends or its agent is found dead.

        `agent` is an open connection to begin with. ContactLost after GIVE_UP_S without contact.
        """
        try:
            return self._follow(agent)
        except KeyboardInterrupt:
            pod, run = self.run.plan().pod, self.run.path.name
            raise Interrupted(
                f"run {run} goes on; nsa-pod follow --pod {pod} {run}, or nsa-pod cancel --pod {pod} {run}"
            ) from None

    def _follow(self, agent: Agent | None) -> State:
        lost_at: float | None = None
        attempt = 0
        while True:
            try:
                with nullcontext(agent) if agent else self.connect() as connected:
                    lost_at, attempt = None, 0
                    return self._follow_on(connected)
            except (ContactLost, Unreachable, CommandTimeout) as e:
                agent = None
                lost_at = self._lost(lost_at, e)
                time.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
                attempt += 1

    def _lost(self, since: float | None, error: Exception) -> float:
        now = time.monotonic()
        if since is None:
            self.progress.say(f"contact lost: {error}; the run goes on, trying to reach it again")
            return now
        if now - since > GIVE_UP_S:
            pod, run = self.run.plan().pod, self.run.path.name
            raise ContactLost(
                f"no contact for {GIVE_UP_S:.0f} s: {error}; the run goes on: nsa-pod fetch --pod {pod} {run}"
            )
        return since

    def _follow_on(self, agent: Agent) -> State:
        remote = agent.run_directory(self.run.path.name)
        known = self._known()
        self._pull(agent, remote, known)
        ended = _has_ended(known)
        state: State = "running"
        while not ended:
            fresh = self._read_on(agent, remote, _POLL_S if self.wait and state == "running" else 0)
            for event in fresh:
                self.progress.event(event)
            self._pull(agent, remote, fresh)
            ended = _has_ended(fresh)
            if fresh:
                continue
            if state != "running":  # nothing came after the agent was found dead
                return state
            state = agent.run_state(remote)
            if state == "running" and not self.wait:
                return state
        return "ended"

    def _known(self) -> list[Event]:
        """The events that are here; the half line that a laptop killed while appending leaves is dropped."""
        file = self.run.journal_file
        if not file.exists():
            return []
        content = file.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(file, whole)
        return _parse(content[:whole])

    def _read_on(self, agent: Agent, remote: str, wait: float) -> list[Event]:
        """The journal's next whole lines, appended to the laptop's copy."""
        file = self.run.journal_file
        offset = file.stat().st_size if file.exists() else 0
        chunk = agent.tail(remote, offset, wait, _CHUNK_BYTES)
        whole = chunk[: chunk.rfind(b"\n") + 1]
        if len(chunk) >= _CHUNK_BYTES and not whole:
            raise IntegrityError(f"the journal of {self.run.path.name} has a line of {_CHUNK_BYTES} bytes or more")
        with file.open("ab") as f:
            f.write(whole)
        return _parse(whole)

    def _pull(self, agent: Agent, remote: str, events: list[Event]) -> None:
        files = missing_files(self.run, (e for e in events if e["event"] in ("stage_files", "stage_ended")))
        if files:
            self.refused += pull(agent, remote, self.run, files)


def _has_ended(events: list[Event]) -> bool:
    return any(event["event"] == "run_ended" for event in events)


def _parse(lines: bytes) -> list[Event]:
    """The events of whole journal lines; the hash chain is checked when the run is judged."""
    try:
        events = [json.loads(line) for line in lines.splitlines()]
    except ValueError as e:
        raise IntegrityError(f"the journal has a line that is not JSON: {e}") from e
    if not all(isinstance(event, dict) and isinstance(event.get("event"), str) for event in events):
        raise IntegrityError("the journal has a line that is not an event")
    return events
