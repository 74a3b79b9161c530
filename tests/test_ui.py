"""What is shown while a run goes on: on a terminal one line that keeps its width, in a pipe plain lines."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from orchestrator import ui
from orchestrator.ui import Course, Progress
from tests.support.waiting import wait_for

EARLIER = {"build": 10.0, "train": 50.0}
PATH = "/" + "/".join(["a-folder-of-some-length"] * 9)


class Clock:
    """Time as a test has it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(ui.time, "monotonic", lambda: self.now)  # type: ignore[attr-defined]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def begin(name: str, t: float = 0.0) -> dict[str, Any]:
    return {"event": "stage_started", "stage": name, "t": t}


def ended(name: str, **more: Any) -> dict[str, Any]:
    return {"event": "stage_ended", "stage": name, "status": "passed", "seconds": 3.0, **more}


def piped() -> tuple[Progress, io.StringIO]:
    progress, out = Progress(), io.StringIO()
    progress.console = Console(file=out, width=40, highlight=False)
    return progress, out


def test_a_stage_shows_its_time_its_tests_and_what_is_left(clock: Clock) -> None:
    course = Course(["build", "train"], EARLIER)
    course.note(begin("build"))
    clock.now += 4
    assert course.line() == "[1/2] build · 4 s · about 56 s left · 4 s in all"
    course.note(ended("build"))
    course.note(begin("train", t=8.0))
    tests = {"done": 12, "collected": 40}
    course.note({"event": "output", "stage": "train", "t": 13.0, "elapsed": 5.0, "last_line": "loss 2", "tests": tests})
    assert course.line() == "[2/2] train · 5 s · 12 of 40 tests · about 45 s left · 13 s in all · loss 2"
    clock.now += 200
    assert "longer than in earlier runs" in course.line()


def test_what_no_earlier_run_tells_is_unknown(clock: Clock) -> None:
    course = Course(["build", "bench"], EARLIER)
    course.note(begin("build"))
    assert course.line() == "[1/2] build · 0 s · time left unknown · 0 s in all"


def test_whoever_comes_later_sees_how_far_it_is(clock: Clock) -> None:
    progress, out = piped()
    progress.expect_stages(["build", "train"], {"build": 10.0, "train": 100.0})
    progress.catch_up([begin("build"), ended("build"), begin("train", t=11.0)])
    assert not out.getvalue()
    clock.now += 60
    progress.tick()
    assert out.getvalue() == "[2/2] train · 1 min 00 s · about 40 s left · 1 min 11 s in all\n"


def test_in_a_pipe_are_whole_lines_and_a_sign_of_life(clock: Clock) -> None:
    """Nothing is broken at a width that a pipe does not have."""
    progress, out = piped()
    progress.busy("connecting to pod p")
    progress.expect_stages(["build"])
    progress.event(begin("build"))
    for _ in range(3):
        clock.now += 25
        progress.tick()
    progress.event(ended("build", status="failed", reason=f"{PATH} is missing"))
    progress.event({"event": "run_ended", "t": 80.0})
    assert out.getvalue().splitlines() == [
        "[1/1] build · 1 min 15 s · time left unknown · 1 min 15 s in all",
        f"[1/1] failed  build  3.00 s  {PATH} is missing",
        "the run took 80.0 s in all",
    ]


@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_one_line_as_wide_as_it_is(colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    progress = Progress()
    progress.console = Console(file=out, width=60, height=20, force_terminal=True, highlight=False)
    with progress:
        progress.expect_stages(["build"])
        progress.event(begin("build"))
        progress.event({"event": "output", "stage": "build", "elapsed": 2.0, "last_line": f"reading {PATH}"})
        wait_for(lambda: "in all" in out.getvalue())
        progress.event(ended("build", status="failed", reason=f"{PATH} is missing"))
    shown = out.getvalue()
    assert f"{PATH} is missing" in shown and ("\x1b[31m" in shown) == colour
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown))
    live = [line.rstrip() for line in lines if "in all" in line]
    assert live and {len(line) for line in live} == {60} and all(line.endswith("...") for line in live)


def test_a_slow_start_is_said_and_a_quick_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "_FIRST_WORD_S", 0.05)
    slow, said = piped()
    quick, out = piped()
    with quick, slow:
        quick.say("done")
        quick.busy("and more")
        slow.busy("connecting to pod p")
        wait_for(lambda: said.getvalue() != "")
    assert (said.getvalue(), out.getvalue()) == ("connecting to pod p\n", "done\n")


def test_quiet_is_quiet() -> None:
    out = io.StringIO()
    progress = Progress(verbosity=-1)
    progress.console = Console(file=out, width=80)
    progress.busy("x")
    progress.event(begin("build"))
    progress.event(ended("build"))
    assert not out.getvalue()


def test_names_between_colons_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Progress().warn("tests/a.py:b:c")
    assert "tests/a.py:b:c" in capsys.readouterr().err
