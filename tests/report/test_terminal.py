"""Lists on a terminal, however narrow it is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orchestrator.commands.output import show
from orchestrator.report import terminal

RUN = {
    "run_id": "20261127-210729-727648f-f6f553ff", "date": "2026-11-27T21:07:29Z", "pod": "pi-4090-torch23",
    "verdict": "incomplete", "seconds": 3723.4, "cost": 1.25, "runbook": "nsa-validate", "title": "A long title " * 9,
}  # fmt: skip
POD = {
    "name": "pi-4090", "transport": "ssh", "host": "pod-7.some-provider.example", "port": 10645, "gpu": "RTX 4090",
    "environment": "rtx4090-torch24", "runbook": "nsa-validate", "cost_per_hour": 0.4,
}  # fmt: skip


@pytest.mark.parametrize("width", [1, 40, 80, 200])
def test_what_can_be_copied_is_whole_at_any_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("orchestrator.commands.output.stdout", lambda: Console(file=out, width=width))
    show([RUN], False, terminal.runs)
    show([POD], False, terminal.pods)
    header, run, _, pod = out.getvalue().splitlines()
    assert header.split()[:4] == ["run_id", "date", "pod", "verdict"]
    assert run.startswith(f"{RUN['run_id']}  2026-11-27 21:07  pi-4090-torch23  incomplete  1 h 02 min  1.25  ")
    assert all(str(value) in pod for value in POD.values())


def test_a_table_without_headings_has_no_line_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    show({"cancelled": "20261127-210729-727648f-f6f553ff"}, False, terminal.facts)
    assert capsys.readouterr().out.splitlines()[0].startswith("cancelled  20261127-")
