"""Follow a run to its end: the journal as it grows, each stage's files as it ends, reconnecting by itself."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from orchestrator.errors import IntegrityError
from orchestrator.pod.client import Agent, Tail
from orchestrator.pod.download import Downloader, Quota
from orchestrator.pod.retry import Connect, while_it_runs
from orchestrator.results import Seen
from orchestrator.shared.answers import RunState, RunStatus
from orchestrator.shared.events import Event
from orchestrator.store.journal_copy import JournalCopy
from orchestrator.store.run_directory import RunDirectory
from orchestrator.text import plain, size
from orchestrator.told import told
from orchestrator.ui import Progress

_POLL_S = 5.0
# While stages end in quick succession their evidence comes in portions: each costs a round trip.
_PORTION_S = 5.0
# The pod says by itself when a run's agent is gone. Is it able to?
_ASK_S = 30.0
_CHUNK_BYTES = 4 << 20
_JOURNAL_LIMIT = 256 << 20
# An agent writes a line at once.
_HALF_LINE_S = 300.0


@dataclass
class Follower:
    """Follows one run; `status_of` asks over a connection whether it goes on, ended, or lost its agent."""

    connect: Connect
    run: RunDirectory
    progress: Progress
    quota: Quota
    status_of: Callable[[Agent], RunStatus]
    wait: bool = True
    _half_since: float | None = field(default=None, init=False)
    _refusal: str = field(default="", init=False)

    def follow(self, agent: Agent | None = None) -> Seen:
        """Bring home all there is and, with `wait`, what comes until the run ends or its agent is found dead.

        `agent` is an open connection to begin with. What is seen counts as much of the journal as has its files here:
        somebody else who follows may have come further. ContactLost without progress for GIVE_UP_S.
        """
        retry = while_it_runs(self.connect, self.progress, self.run.plan()["pod"], self.run.path.name)
        return retry.until_done(lambda there: self._follow_on(there, retry.advance), agent)

    def _follow_on(self, agent: Agent, advance: Callable[[], None]) -> Seen:
        downloader, copy = Downloader.of(self.run, self.quota, advance), JournalCopy(self.run.journal_file)
        state = self._bring(agent, downloader, copy, advance)
        agent.let_go()
        return Seen(state, downloader.refused, downloader.left, copy.seen, self._refusal)

    def _bring(self, agent: Agent, downloader: Downloader, copy: JournalCopy, advance: Callable[[], None]) -> RunState:
        """Read the journal on and fetch what it names: evidence at once, the rest when all of it is read."""
        has_ended = False
        while known := copy.extend():
            has_ended |= self._take_in(known, downloader, lambda event: self.progress.catch_up([event]))
        if not has_ended:
            with agent.following(agent.run_directory(self.run.path.name)) as tail:
                state = self._bring_growing(agent, tail, downloader, copy, advance)
            if state != "ended":
                return state
        downloader.take(agent, agent.run_directory(self.run.path.name), everything=True)
        return "ended"

    def _bring_growing(
        self, agent: Agent, tail: Tail, downloader: Downloader, copy: JournalCopy, advance: Callable[[], None]
    ) -> RunState:
        state: RunState = "running"
        taken = asked = time.monotonic()
        while True:
            more = self.wait if state == "running" else tail.goes_on
            fresh = self._read_on(tail, copy, _POLL_S if more else 0)
            if self._take_in(fresh, downloader, self.progress.event):
                return "ended"
            if not fresh or time.monotonic() - taken > _PORTION_S:
                downloader.take(agent, tail.run_directory, everything=not fresh)
                taken = time.monotonic()
            self.progress.tick()
            if fresh:
                advance()
                asked = time.monotonic()
                continue
            if state != "running":  # nothing came after the agent was found dead
                if tail.goes_on and time.monotonic() - asked < _ASK_S:
                    continue
                return state
            if self.wait and tail.goes_on and time.monotonic() - asked < _ASK_S:
                continue
            status, asked = self.status_of(agent), time.monotonic()
            state, self._refusal = status["state"], plain(status.get("refusal", ""))
            advance()
            if state == "running" and not self.wait:
                return state

    def _take_in(self, lines: bytes, downloader: Downloader, show: Callable[[Event], None]) -> bool:
        """Note and show the events of whole journal lines, one at a time; whether the run's end is among them."""
        has_ended = False
        for event in _events(lines):
            downloader.note([event])
            show(event)
            has_ended |= event["event"] == "run_ended"
        return has_ended

    def _read_on(self, tail: Tail, copy: JournalCopy, wait: float) -> bytes:
        """The journal's next whole lines, appended to the laptop's copy."""
        chunk = tail.read(copy.seen, wait, _CHUNK_BYTES)
        if copy.seen + len(chunk) > _JOURNAL_LIMIT:
            raise IntegrityError(f"the journal of {self.run.path.name} is larger than {size(_JOURNAL_LIMIT)}")
        whole = chunk[: chunk.rfind(b"\n") + 1]
        if len(chunk) >= _CHUNK_BYTES and not whole:
            raise IntegrityError(f"the journal of {self.run.path.name} has a line of {_CHUNK_BYTES} bytes or more")
        if not chunk or whole:
            self._half_since = None
        elif self._half_since is None:
            self._half_since = time.monotonic()
        elif time.monotonic() - self._half_since > _HALF_LINE_S:
            raise IntegrityError(f"the journal of {self.run.path.name} has half a line for {_HALF_LINE_S:.0f} s")
        return copy.extend(whole)


def _events(lines: bytes) -> Iterator[Event]:
    """The events of whole journal lines; the hash chain is checked when the run is judged."""
    for line in io.BytesIO(lines):
        try:
            event = told(line)
        except ValueError as e:
            raise IntegrityError(f"the journal has a line that is not JSON, or cannot be read: {e}") from e
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            raise IntegrityError("the journal has a line that is not an event")
        yield event
