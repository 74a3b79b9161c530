"""Follow a run to its end: the journal as it grows, each stage's files as it ends, reconnecting by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import DiskError, IntegrityError
from orchestrator.pod.client import Agent
from orchestrator.pod.download import Intake, Limits
from orchestrator.pod.retry import Connect, Contact
from orchestrator.results import State
from orchestrator.store.journal_copy import JournalCopy
from orchestrator.store.run_directory import RunDirectory
from orchestrator.text import size
from orchestrator.ui import Progress

Event = Mapping[str, Any]

_POLL_S = 5.0
_CHUNK_BYTES = 4 << 20
_JOURNAL_LIMIT = 256 << 20


@dataclass
class Follower:
    """Follows one run; after it, `refused` says what was not taken, and `left` what the limits keep on the pod.

    `seen` is how many bytes of the journal have their files here: somebody else who follows may have come further.
    """

    connect: Connect
    run: RunDirectory
    progress: Progress
    limits: Limits
    wait: bool = True
    refused: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    seen: int = 0

    def follow(self, agent: Agent | None = None) -> State:
        """Bring home all there is and, with `wait`, what comes until the run ends or its agent is found dead.

        `agent` is an open connection to begin with. ContactLost without progress for GIVE_UP_S.
        """
        try:
            return self._follow(agent)
        except DiskError as e:
            pod, run = self.run.plan().pod, self.run.path.name
            raise DiskError(f"{e}; nothing is lost on the pod: nsa-pod fetch --pod {pod} {run}") from e

    def _follow(self, agent: Agent | None) -> State:
        which = f"--pod {self.run.plan().pod} {self.run.path.name}"
        ways_on = f"nsa-pod follow {which}, or nsa-pod cancel {which}"
        contact = Contact(self.connect, self.progress, "the run goes on", ways_on)
        return contact.keep(lambda there: self._follow_on(there, contact.advance), agent)

    def _follow_on(self, agent: Agent, advance: Callable[[], None]) -> State:
        remote = agent.run_directory(self.run.path.name)
        intake, copy = Intake.of(self.run, self.limits, advance), JournalCopy(self.run.journal_file)
        try:
            return self._take_in(agent, remote, intake, copy, advance)
        finally:
            self.refused, self.left, self.seen = intake.refused, intake.left, copy.seen

    def _take_in(
        self, agent: Agent, remote: str, intake: Intake, copy: JournalCopy, advance: Callable[[], None]
    ) -> State:
        """Read the journal on and take in what it names: evidence at once, the rest when all of it is read."""
        known = _parse(copy.extend())
        intake.note(known)
        ended = _has_ended(known)
        state: State = "running"
        while not ended:
            fresh = self._read_on(agent, remote, copy, _POLL_S if self.wait and state == "running" else 0)
            intake.note(fresh)
            for event in fresh:
                self.progress.event(event)
            ended = _has_ended(fresh)
            intake.take(agent, remote, everything=not fresh)
            advance()
            if fresh:
                continue
            if state != "running":  # nothing came after the agent was found dead
                return state
            state = agent.run_state(remote)
            if state == "running" and not self.wait:
                return state
        intake.take(agent, remote, everything=True)
        return "ended"

    def _read_on(self, agent: Agent, remote: str, copy: JournalCopy, wait: float) -> list[Event]:
        """The journal's next whole lines, appended to the laptop's copy."""
        chunk = agent.tail(remote, copy.seen, wait, _CHUNK_BYTES)
        if copy.seen + len(chunk) > _JOURNAL_LIMIT:
            raise IntegrityError(f"the journal of {self.run.path.name} is larger than {size(_JOURNAL_LIMIT)}")
        whole = chunk[: chunk.rfind(b"\n") + 1]
        if len(chunk) >= _CHUNK_BYTES and not whole:
            raise IntegrityError(f"the journal of {self.run.path.name} has a line of {_CHUNK_BYTES} bytes or more")
        return _parse(copy.extend(whole))


def _has_ended(events: list[Event]) -> bool:
    return any(event["event"] == "run_ended" for event in events)


def _parse(lines: bytes) -> list[Event]:
    """The events of whole journal lines; the hash chain is checked when the run is judged."""
    try:
        events = [json.loads(line) for line in lines.splitlines()]
    except (ValueError, RecursionError) as e:
        raise IntegrityError(f"the journal has a line that is not JSON: {e}") from e
    if not all(isinstance(event, dict) and isinstance(event.get("event"), str) for event in events):
        raise IntegrityError("the journal has a line that is not an event")
    return events
