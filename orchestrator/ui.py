"""What the user sees while it happens: progress on stderr, so that stdout stays for data."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from threading import Timer
from types import TracebackType
from typing import Literal

import click
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.status import Status
from rich.text import Text

from orchestrator.shared.events import Event
from orchestrator.text import clock, number, plain, printable, seconds
from orchestrator.verdict.status import MEANINGS, known

_FIRST_WORD_S = 1.0  # what is quick needs none
_HEARTBEAT_S = 60.0
_LATE_S = 5.0
_SILENT_S = 2.0  # what is over sooner shows no time


def coloured(status: object) -> str:
    """A status in its colour, as rich markup; what a pod calls one, and is none, is as it is."""
    found = known(status)
    text = escape(plain(status))
    return f"[{MEANINGS[found].colour}]{text}[/]" if found else text


class Screen:
    """The stage's own output on a stream of this process: as it is, but on a terminal without what steers one."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self._out = (sys.stdout if name == "stdout" else sys.stderr).buffer
        self._on_terminal = self._out.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, piece: bytes) -> None:
        self._out.write(printable(self._decoder.decode(piece)).encode() if self._on_terminal else piece)
        self._out.flush()


class _Now:
    """What is going on, in one line that is never longer than the terminal is wide; its time goes on by itself."""

    def __init__(self) -> None:
        self.course = Course()
        self._text = ""
        self._begun = time.monotonic()

    def does(self, text: str) -> None:
        """What is done from now on, while no stage runs."""
        self._text, self._begun = plain(text), time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(plain(self.line(), limit=max(20, options.max_width)), no_wrap=True, overflow="ellipsis")

    def line(self) -> str:
        if self.course.stage:
            return self.course.line()
        silent = time.monotonic() - self._begun
        return self._text if silent < _SILENT_S else f"{self._text} · {clock(silent)}"


class Course:
    """How far a run is: its stage, for how long, tests done of collected, and what is left by earlier runs."""

    def __init__(self, names: Sequence[str] = (), earlier: Mapping[str, float] | None = None) -> None:
        self._names = list(names)
        self._earlier = earlier or {}
        self._ended: set[str] = set()
        self._begun = time.monotonic()
        self._run_begun = self._begun
        self._tests = ""
        self._doing = ""
        self.stage = ""

    def note(self, event: Event) -> None:
        """Take in what the journal says."""
        kind, stage = event.get("event"), event.get("stage")
        self._run_begun = min(self._run_begun, time.monotonic() - (number(event.get("t")) or 0.0))
        if kind == "stage_started" and stage != self.stage:
            self.stage, self._tests, self._doing = plain(stage), "", ""
            self._begun = time.monotonic()
        elif kind == "output":
            self._begun = min(self._begun, time.monotonic() - (number(event.get("elapsed")) or 0.0))
            self._tests = _tests(event)
            self._doing = plain(event.get("last_line"))
        elif kind == "sabotage_started":
            self._doing = f"planted fault {event.get('number')} of {event.get('of')}: {event.get('name')}"
        elif kind == "stage_ended":
            self._ended.add(str(stage))
            self.stage = ""

    def counter(self, stage: object) -> str:
        position = self._names.index(stage) + 1 if stage in self._names else "?"
        return f"[{position}/{len(self._names)}]"

    def line(self) -> str:
        """The stage that runs; what it wrote comes last, where a narrow terminal has no room for it."""
        now = time.monotonic()
        elapsed = now - self._begun
        parts = (
            f"{self.counter(self.stage)} {self.stage}",
            clock(elapsed),
            self._tests,
            self._left(elapsed),
            f"{clock(now - self._run_begun)} in all",
            self._doing,
        )
        return " · ".join(part for part in parts if part)

    def _left(self, elapsed: float) -> str:
        to_come = [name for name in self._names if name not in self._ended]
        if any(name not in self._earlier for name in to_come):
            return "time left unknown"
        took = self._earlier.get(self.stage, 0.0)
        if elapsed > took + _LATE_S:
            return "longer than in earlier runs"
        rest = sum(self._earlier[name] for name in to_come)
        return f"about {clock(rest - min(elapsed, took))} left"


def _tests(event: Event) -> str:
    """Tests done of collected, of a stage that runs pytest."""
    told = event.get("tests")
    done, collected = (number(told.get(key)) if isinstance(told, dict) else None for key in ("done", "collected"))
    return f"{done:.0f} of {collected:.0f} tests" if done is not None and collected else ""


class Progress:
    """Progress lines; `verbosity` -1 keeps only warnings, 1 adds details. Use as a context manager."""

    def __init__(self, verbosity: int = 0) -> None:
        self.console = Console(stderr=True, highlight=False, emoji=False)
        self._verbosity = verbosity
        self._live: Status | None = None
        self._now = _Now()
        self._judged = True
        self._first_word = Timer(_FIRST_WORD_S, self._say_now)
        self._shown_at = time.monotonic()

    def __enter__(self) -> Progress:
        if self._verbosity >= 0 and self.console.is_terminal:
            self._live = self.console.status(self._now, spinner="dots")
        elif self._verbosity >= 0:
            self._first_word.daemon = True
            self._first_word.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._first_word.cancel()
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line of what was done."""
        if self._verbosity >= 0:
            self._print(escape(plain(text)))

    def detail(self, text: str) -> None:
        """A line that only -v shows."""
        if self._verbosity >= 1:
            self._print(f"  [dim]{escape(plain(text))}[/]")

    def warn(self, text: str) -> None:
        """A line that even -q shows."""
        self._print(f"[yellow]warning:[/] {escape(plain(text))}")

    def busy(self, text: str) -> None:
        """What is going on now, until the next such word; on no terminal it is said where all was silent for long."""
        self._now.does(text)
        self._show_now()

    def tick(self) -> None:
        """To be called now and then where nothing else is: time goes on."""
        self._show_now()

    def ask(self, question: str) -> bool:
        """Have a person say yes or no; nothing else is written meanwhile."""
        if self._live:
            self._live.stop()
        return click.confirm(question, err=True)

    def bell(self) -> None:
        """The terminal's, where there is one."""
        self.console.bell()

    def still(self) -> None:
        """Leave the terminal to the output of a stage: no line of what is going on from now on."""
        if self._live:
            self._live.stop()
            self._live = None

    def expect_stages(
        self, names: Sequence[str], earlier: Mapping[str, float] | None = None, *, judged: bool = True
    ) -> None:
        """The stages of the run, and what those took in earlier runs that are known from there; of a run that nobody
        judges no status is shown.
        """
        self._now.course = Course(names, earlier)
        self._judged = judged

    def catch_up(self, events: Iterable[Event]) -> None:
        """Take in what was shown before."""
        for event in events:
            self._now.course.note(event)

    def event(self, event: Event) -> None:
        """Show one event of the run's journal."""
        course = self._now.course
        course.note(event)
        kind, stage = event.get("event"), plain(event.get("stage"))
        if kind == "stage_started":
            self._shown_at = time.monotonic()
        elif kind == "test_failed":
            self.say(f"  {stage}: {event.get('id')}: {event.get('reason')}")
        elif kind == "sabotage_ended":
            took = seconds(number(event.get("seconds")))
            self.detail(f"{stage}: {event.get('name')} {event.get('outcome')}, {took}")
        elif kind == "stage_ended":
            self._now.does(f"{course.counter(stage)} {stage} ended")
            if self._judged:
                self._say_ended(event, f"{course.counter(stage)}")
        elif kind == "cancelled":
            self.say(f"{'the pod was taken' if event.get('stolen') else 'cancelled'} by {event.get('by', 'someone')}")
        elif kind == "limit_reached":
            self.say(f"the run's limit was reached: {event.get('limit')}")
        elif kind == "run_resumed":
            self.say(f"resumed by {event.get('by', 'someone')}")
        elif kind == "run_ended":
            self.say(f"the run took {seconds(number(event.get('t')))} in all")
            self._now.does("bringing home what is not here yet")
        self._show_now()

    def _say_ended(self, event: Event, counter: str) -> None:
        status = event.get("status")
        reason = "" if status == "passed" else escape(plain(event.get("reason")))
        took = seconds(number(event.get("seconds")))
        if self._verbosity >= 0:
            self._print(f"{escape(counter)} {coloured(status)}  {escape(plain(event.get('stage')))}  {took}  {reason}")

    def _show_now(self) -> None:
        if self._live:
            self._live.start()
        elif self._verbosity >= 0 and not self.console.is_terminal and self._silence() >= _HEARTBEAT_S:
            self._say_now()

    def _silence(self) -> float:
        return time.monotonic() - self._shown_at

    def _say_now(self) -> None:
        line = self._now.line()
        if line:
            self._print(escape(plain(line)))

    def _print(self, markup: str) -> None:
        """As one line, which a terminal may break and no space is put into: paths can be copied."""
        self._first_word.cancel()
        self._shown_at = time.monotonic()
        self.console.print(markup, soft_wrap=True)
