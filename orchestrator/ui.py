"""What the user sees while it happens: progress on stderr, so that stdout stays for data."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from orchestrator.shared.events import Event
from orchestrator.text import number, plain, seconds
from orchestrator.verdict.status import MEANINGS, known

_HEARTBEAT_S = 60.0


def coloured(status: object) -> str:
    """A status in its colour, as rich markup; what a pod calls one, and is none, is as it is."""
    found = known(status)
    text = escape(plain(status))
    return f"[{MEANINGS[found].colour}]{text}[/]" if found else text


class Progress:
    """Progress lines; `verbosity` -1 keeps only warnings, 1 adds details. Use as a context manager."""

    def __init__(self, verbosity: int = 0) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._verbosity = verbosity
        self._live: Status | None = None
        self._stages: list[str] = []
        self._last_beat = time.monotonic()

    def __enter__(self) -> Progress:
        if self.console.is_terminal and self._verbosity >= 0:
            self._live = self.console.status("", spinner="dots")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line of what was done."""
        if self._verbosity >= 0:
            self.console.print(escape(plain(text)), soft_wrap=True)

    def detail(self, text: str) -> None:
        """A line that only -v shows."""
        if self._verbosity >= 1:
            self.console.print(f"  [dim]{escape(plain(text))}[/]")

    def warn(self, text: str) -> None:
        """A line that even -q shows."""
        self.console.print(f"[yellow]warning:[/] {escape(plain(text))}", soft_wrap=True)

    def busy(self, text: str) -> None:
        """What is going on right now, replaced by the next one; on no terminal, a heartbeat line now and then."""
        if self._live:
            self._live.update(escape(plain(text, limit=max(20, self.console.width - 4))))
            self._live.start()
        elif self._verbosity >= 0 and time.monotonic() - self._last_beat >= _HEARTBEAT_S:
            self._last_beat = time.monotonic()
            self.console.print(escape(plain(text)))

    def expect_stages(self, names: list[str]) -> None:
        """The stages of the run, for the counter."""
        self._stages = names

    def event(self, event: Event) -> None:
        """Show one event of the run's journal."""
        kind = event.get("event")
        if kind == "stage_started":
            self._last_beat = time.monotonic()
            self.busy(f"{self._counter(event)} {event.get('stage')}")
        elif kind == "output":
            elapsed = seconds(number(event.get("elapsed")))
            self.busy(f"{self._counter(event)} {event.get('stage')} · {elapsed} · {event.get('last_line')}")
        elif kind == "test_failed":
            self.say(f"  {event.get('stage')}: {event.get('id')}: {event.get('reason')}")
        elif kind == "sabotage_started":
            step = f"{event.get('number')} of {event.get('of')}"
            self.busy(f"{self._counter(event)} {event.get('stage')} · planted fault {step}: {event.get('name')}")
        elif kind == "sabotage_ended":
            took = seconds(number(event.get("seconds")))
            self.detail(f"{event.get('stage')}: {event.get('name')} {event.get('outcome')}, {took}")
        elif kind == "stage_ended" and self._verbosity >= 0:
            status = event.get("status")
            reason = "" if status == "passed" else escape(plain(event.get("reason")))
            name = escape(plain(event.get("stage")))
            took = seconds(number(event.get("seconds")))
            line = f"{self._counter(event)} {coloured(status)}  {name}  {took}  {reason}"
            self.console.print(line)
        elif kind == "cancelled":
            self.say(f"{'the pod was taken' if event.get('stolen') else 'cancelled'} by {event.get('by', 'someone')}")
        elif kind == "limit_reached":
            self.say(f"the run's limit was reached: {event.get('limit')}")
        elif kind == "run_resumed":
            self.say(f"resumed by {event.get('by', 'someone')}")

    def _counter(self, event: Event) -> str:
        name = event.get("stage")
        position = self._stages.index(name) + 1 if name in self._stages else "?"
        return f"\\[{position}/{len(self._stages)}]"
