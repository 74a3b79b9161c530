"""Result and lists -> tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.results import Result
from orchestrator.text import plain, seconds, size
from orchestrator.ui import coloured
from orchestrator.verdict.status import OUTCOMES


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
    console.print(f"[bold {OUTCOMES[result.verdict].colour}]{escape(plain(result.summary))}[/]", soft_wrap=True)
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
    """Runs, kept here (with their verdict) or on a pod."""
    return _columns(found, ("run_id", "pod", "state", "verdict", "runbook", "who", "error"))


def environments(found: Sequence[Mapping[str, Any]]) -> Table:
    """The environments on a pod."""
    shown = [
        {
            **environment,
            **environment["packages"],
            "size": size(environment["bytes"]),
            "unused for": seconds(environment["age_s"]),
            "in use": "yes" if environment["in_use"] else "",
        }
        for environment in found
    ]
    return _columns(shown, ("key", "profile", "python_version", "torch", "triton", "size", "unused for", "in use"))


def _columns(found: Sequence[Mapping[str, object]], keys: Sequence[str]) -> Table:
    """Those of the columns that any row has."""
    there = [key for key in keys if any(key in row for row in found)]
    return table(there or ["none"], [[str(row.get(key, "")) for key in there] for row in found])


def facts(found: Mapping[str, object]) -> Table:
    """Any mapping, a line for each item of its lists."""
    lines = [
        (key if first else "", str(item))
        for key, value in found.items()
        for first, item in ((n == 0, x) for n, x in enumerate(value if isinstance(value, list) else [value]))
    ]
    return table(("", ""), lines)
