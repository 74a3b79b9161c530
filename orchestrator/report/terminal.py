"""Result and lists -> tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.results import Result
from orchestrator.text import plain, seconds
from orchestrator.ui import coloured


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table; cells are text, never markup."""
    shown = Table(*header, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        shown.add_row(*(escape(plain(cell)) for cell in row))
    return shown


def show(result: Result, console: Console) -> None:
    """The verdict line, the stages, and where the report is."""
    stages = Table("stage", "status", "time", "tests", "reason", box=None, pad_edge=False, header_style="bold")
    for s in result.stages:
        passed = s.tests.get("passed")
        name = s.name if s.required else f"{s.name} (optional)"
        stages.add_row(
            escape(plain(name)),
            coloured(s.status),
            seconds(s.seconds),
            "" if passed is None else f"{passed} passed",
            escape(plain(s.reason)),
        )
    console.print(stages)
    if result.error:
        console.print(f"[red]error:[/] {escape(plain(result.error))}")
    colour = "green" if result.verdict == "passed" else "yellow" if result.verdict == "incomplete" else "red"
    console.print(f"[bold {colour}]{escape(plain(result.summary))}[/]", soft_wrap=True)
    console.print(f"report: {escape(result.path)}/report.md", soft_wrap=True)


def checks(found: Sequence[Mapping[str, str]]) -> Table:
    """doctor's checks."""
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    shown = Table("check", "", "found", "what to do", box=None, pad_edge=False, header_style="bold")
    for check in found:
        level = check["level"]
        cells = (escape(plain(check[key])) for key in ("found", "advice"))
        shown.add_row(escape(plain(check["name"])), f"[{colours[level]}]{level}[/]", *cells)
    return shown


def pods(found: Sequence[Mapping[str, object]]) -> Table:
    """The inventory."""
    keys = ("name", "transport", "host", "port", "gpu", "environment", "runbook", "cost_per_hour")
    return table(keys, [[str(pod.get(key, "")) for key in keys] for pod in found])


def runs(found: Sequence[Mapping[str, object]]) -> Table:
    """Runs, kept here or on a pod."""
    keys = list(found[0]) if found else ["no runs"]
    return table(keys, [[str(run[key]) for key in keys] for run in found])


def facts(found: Mapping[str, object]) -> Table:
    """Any flat mapping."""
    return table(("", ""), [(key, str(value)) for key, value in found.items()])
