"""Result and lists -> tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestrator.results import Result
from orchestrator.text import count, listing, number, plain, seconds, size
from orchestrator.ui import coloured

_PAIRED = ("torch", "triton", "flash-attn")
_MOST_PACKAGES = 6
_LONGEST_LINE = 1000
_DAY_S = 86400.0


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
    """Runs, kept here (with their verdict) or on a pod."""
    return _columns(found, ("run_id", "pod", "state", "verdict", "runbook", "who", "error"))


def environments(found: Sequence[Mapping[str, Any]]) -> Table:
    """The environments on a pod."""
    shown = [
        {
            **environment,
            **environment["packages"],
            "size": size(environment["bytes"]),
            "unused for": _days(environment["age_s"]),
            "in use": "yes" if environment["in_use"] else "",
        }
        for environment in found
    ]
    return _columns(shown, ("key", "profile", "python_version", "torch", "triton", "size", "unused for", "in use"))


def _columns(found: Sequence[Mapping[str, object]], keys: Sequence[str]) -> Table:
    """Those of the columns that any row has."""
    there = [key for key in keys if any(key in row for row in found)]
    return table(there or ["none"], [[str(row.get(key, "")) for key in there] for row in found])


def facts(found: Mapping[str, Any]) -> RenderableType:
    """What a command tells: an environment or what was pruned as sentences, else a line for each item of a list."""
    if "removed" in found:
        return _pruned(found)
    if "packages" in found:
        return _environment(found)
    lines = [
        (key if first else "", str(item))
        for key, value in found.items()
        for first, item in ((n == 0, x) for n, x in enumerate(value if isinstance(value, list) else [value]))
    ]
    return table(("", ""), lines)


def _environment(found: Mapping[str, Any]) -> RenderableType:
    """An environment that is ready on the pod."""
    versions = dict(found["packages"])
    names = [*filter(versions.__contains__, _PAIRED), *sorted(versions.keys() - set(_PAIRED))]
    cuda = f", CUDA {found['torch_cuda']}" if found.get("torch_cuda") else ""
    named = f"environment {found['key']}" if found.get("key") else "the pod's own Python as it is"
    profile = f" ({found['profile']})" if found.get("profile") else ""
    has = listing((f"{name} {versions[name]}" for name in names), _MOST_PACKAGES) or "none of the named packages"
    built = found.get("built")
    lines = [f"{named}{profile}: Python {found.get('python_version')}{cuda}", f"has {has}", f"at {found['python']}"]
    lines += [f"{name} was compiled on the pod" for name in (built if isinstance(built, dict) else ())]
    return _lines(*lines, *(found.get("notes") or ()))


def _pruned(found: Mapping[str, Any]) -> RenderableType:
    """Which environments went, which stayed and why, and what else was freed."""
    would = "would be " if found.get("dry_run") else ""
    removed, kept = ([e for e in found[name] if isinstance(e, dict)] for name in ("removed", "kept"))
    wheels = [wheel for wheel in found.get("wheels") or () if isinstance(wheel, dict)]
    rows = [(e, f"{would}removed") for e in removed]
    rows += [(e, f"kept: {e.get('why')}") for e in kept]
    shown = [
        {
            **environment,
            "profile": environment.get("profile") or "",
            "size": size(_bytes(environment)),
            "unused for": _days(environment.get("age_s")),
            "": what,
        }
        for environment, what in rows
    ]
    freed = "" if would else f"; {size(_bytes(found, 'freed_bytes'))} of disk freed, downloads included"
    lines = [f"compiled wheel {would}removed: {wheel.get('file')}, {size(_bytes(wheel))}" for wheel in wheels]
    lines.append(f"{count(len(removed), 'environment')} {would}removed, {len(kept)} kept{freed}")
    tables = [_columns(shown, ("key", "profile", "size", "unused for", ""))] if shown else []
    return Group(*tables, _lines(*lines))


def _lines(*lines: object) -> Text:
    return Text("\n".join(plain(line, _LONGEST_LINE) for line in lines))


def _bytes(found: Mapping[str, Any], key: str = "bytes") -> int:
    return int(number(found.get(key)) or 0)


def _days(age_s: object) -> str:
    """An age for people."""
    found = number(age_s)
    return f"{found / _DAY_S:.0f} days" if found and found > 2 * _DAY_S else seconds(found)
