"""A word when it is over: who gets it, what it says, and that it changes nothing."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.cli import main
from orchestrator.errors import ContactLost
from orchestrator.results import Result
from orchestrator.tasks.notice import Notice
from orchestrator.ui import Progress

RESULT = Result(
    verdict="failed", summary="failed on CPU; $(touch x)", state="ended", commit="c", tree="t", dirty=False, pod="p",
    run_id="r-1", path="runs/r-1", runbook={}, left_out=[], left_out_reasons={}, stages=[],
)  # fmt: skip
TELLER = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open({!r}, 'w')); print('noise')"


def progress(out: io.StringIO, **over: Any) -> Progress:
    found = Progress()
    found.console = Console(file=out, width=200, **over)
    return found


@pytest.mark.process
def test_a_command_gets_the_sentence_as_one_word_and_no_shell_sees_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = (sys.executable, "-c", TELLER.format(str(tmp_path / "told")), "; touch y")
    with Notice([command], progress(io.StringIO())) as notice:
        notice.ended(RESULT)
    words, variables = json.loads((tmp_path / "told").read_text())
    assert words == ["; touch y", "nsa-pod: failed on CPU; $(touch x)"]
    told = {name: variables[f"NSA_POD_{name}"] for name in ("VERDICT", "RUN", "PATH", "SUMMARY")}
    assert told == {"VERDICT": "failed", "RUN": "r-1", "PATH": "runs/r-1", "SUMMARY": RESULT.summary}
    assert capfd.readouterr().out == "", "stdout is for data"
    assert [path.name for path in tmp_path.iterdir()] == ["told"]


@pytest.mark.process
def test_what_becomes_of_the_command_changes_nothing(tmp_path: Path) -> None:
    out = io.StringIO()
    failing = (sys.executable, "-c", "import sys; sys.exit(3)")
    with Notice([failing, (str(tmp_path / "nowhere"),)], progress(out)) as notice:
        notice.ended(RESULT)
    assert out.getvalue().count("warning: the notice was not given") == 2


@pytest.mark.process
def test_a_lost_contact_is_told_and_goes_on_being_one(tmp_path: Path) -> None:
    command = (sys.executable, "-c", TELLER.format(str(tmp_path / "told")))
    with pytest.raises(ContactLost), Notice([command], progress(io.StringIO())):
        raise ContactLost("pod 'p' is gone")
    words, variables = json.loads((tmp_path / "told").read_text())
    assert words == ["nsa-pod: pod 'p' is gone"] and variables["NSA_POD_VERDICT"] == "error"


def test_an_interrupt_and_a_preview_are_no_end(tmp_path: Path) -> None:
    command = (str(tmp_path / "nowhere"),)
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt), Notice([command], progress(out)):
        raise KeyboardInterrupt
    with Notice([command], progress(out)):
        pass
    assert out.getvalue() == ""


@pytest.mark.parametrize(("terminal", "rung"), [(True, "\x07"), (False, "")])
def test_the_bell_rings_on_a_terminal(terminal: bool, rung: str) -> None:
    out = io.StringIO()
    with Notice([("bell",)], progress(out, force_terminal=terminal)) as notice:
        notice.ended(RESULT)
    assert out.getvalue() == rung


@pytest.mark.parametrize("given", ["", "say 'no", "   "])
def test_what_is_no_command_line_is_bad_input(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["fetch", "--pod", "local", "--notify", given])
    assert "--notify" in capsys.readouterr().err
