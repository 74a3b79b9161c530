"""What lists and commands tell -> tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestrator.shared.answers import EnvironmentSummary, KeptItem, Pruned, RemovedItem
from orchestrator.text import count, listing, number, plain, seconds, size

_PAIRED = ("torch", "triton", "flash-attn")
_MOST_PACKAGES = 6
_LONGEST_LINE = 1000
_DAY_S = 86400.0
_GAP = 2  # between columns
Removed = TypeVar("Removed", RemovedItem, KeptItem)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table; cells are text, never markup."""
    shown = Table(*header, box=None, pad_edge=False, header_style="bold", show_header=any(header))
    for row in rows:
        shown.add_row(*(escape(plain(cell)) for cell in row))
    return shown


def findings(found: Sequence[Mapping[str, str]]) -> Table:
    """doctor's."""
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    shown = Table("what", "", "found", "what to do", box=None, pad_edge=False, header_style="bold")
    for finding in found:
        level = finding["level"]
        cells = (escape(plain(finding[key])) for key in ("found", "advice"))
        shown.add_row(escape(plain(finding["name"])), f"[{colours[level]}]{level}[/]", *cells)
    return shown


def pods(found: Sequence[Mapping[str, object]]) -> RenderableType:
    """The inventory."""
    return _columns(found, ("name", "transport", "host", "port", "gpu", "environment", "runbook", "cost_per_hour"))


def runs(found: Sequence[Mapping[str, object]]) -> RenderableType:
    """Runs, kept here or on a pod."""
    keys = ("run_id", "date", "pod", "verdict", "time", "cost")
    return _columns([{**run, **_measured(run)} for run in found], keys, ("runbook", "title", "who", "error"))


def _measured(run: Mapping[str, object]) -> dict[str, object]:
    """Of a run, what is shown in another form: its figures, and how far it is while it has no verdict."""
    took, cost = number(run.get("seconds")), number(run.get("cost"))
    return {
        "date": str(run.get("date", "")).replace("T", " ")[:16],
        "verdict": run.get("verdict") or ("-" if run.get("state") == "ended" else run.get("state")),
        "time": None if took is None else seconds(took),
        "cost": None if cost is None else f"{cost:.2f}",
    }


def environments(found: Sequence[EnvironmentSummary]) -> RenderableType:
    """The environments on a pod."""
    shown = [{**_row(environment), "in use": "yes" if environment["in_use"] else ""} for environment in found]
    return _columns(shown, ("key", "profile", "python_version", "torch", "triton", "size", "unused for", "in use"))


def _row(environment: EnvironmentSummary) -> dict[str, object]:
    unused_s = environment["age_s"]
    return {
        **environment,
        **environment["packages"],
        "profile": environment["profile"] or "",
        "size": size(environment["bytes"]),
        "unused for": f"{unused_s / _DAY_S:.0f} days" if unused_s > 2 * _DAY_S else seconds(unused_s),
    }


def _columns(
    found: Sequence[Mapping[str, object]], whole: Sequence[str], shortened: Sequence[str] = ()
) -> RenderableType:
    """Those of the columns that any row has, a line each. A narrow terminal shortens none but those of `shortened`."""
    cells = {key: [plain("" if row.get(key) is None else row[key]) for row in found] for key in (*whole, *shortened)}
    there = {key: column for key, column in cells.items() if any(column)} or {"none": []}
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for key in there:
        shown.add_column(key, no_wrap=key not in shortened)
    for row in zip(*there.values(), strict=True):
        shown.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    least = (max(map(cell_len, [key, *(column if key in whole else ())])) for key, column in there.items())
    return _AtLeast(shown, sum(least) + _GAP * (len(there) - 1))


@dataclass(frozen=True)
class _AtLeast:
    """A table in a terminal that may be narrower than it: the terminal breaks its lines, so that they can be copied."""

    table: Table
    width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.table, options.update(width=max(options.max_width, self.width)))


def facts(found: Mapping[str, Any]) -> RenderableType:
    """What a command tells: an environment as sentences, else a line for each item of a list."""
    if "packages" in found:
        return _environment(found)
    lines = [
        (key if first else "", "-" if item is None else str(item))
        for key, value in found.items()
        for first, item in ((n == 0, x) for n, x in enumerate(value if isinstance(value, list) else [value]))
    ]
    return table(("", ""), lines)


def _environment(found: Mapping[str, Any]) -> RenderableType:
    """An environment that is ready on the pod, as a plan has it."""
    versions = found["packages"]
    names = [*filter(versions.__contains__, _PAIRED), *sorted(versions.keys() - set(_PAIRED))]
    cuda = f", CUDA {found['torch_cuda']}" if found.get("torch_cuda") else ""
    named = f"environment {found['key']}" if found.get("key") else "the pod's own Python as it is"
    profile = f" ({found['profile']})" if found.get("profile") else ""
    has = listing((f"{name} {versions[name]}" for name in names), _MOST_PACKAGES) or "none of the named packages"
    lines = [f"{named}{profile}: Python {found['python_version']}{cuda}", f"has {has}", f"at {found['python']}"]
    lines += [f"{name} was compiled on the pod" for name in found.get("built", ())]
    return _lines(*lines, *found.get("notes", ()))


def pruned(found: Pruned) -> RenderableType:
    """What went and how much that was, what is in use and by whom, and the workdir before and after."""
    would = "would be " if found["dry_run"] else ""
    lines = []
    for kind, items in _by_kind(found["removed"]).items():
        lines.append(f"{would}removed: {count(len(items), kind)}, {size(sum(item['bytes'] for item in items))}")
    if not found["removed"]:
        lines.append("nothing can be removed" if found["dry_run"] else "nothing was removed")
    for kept in found["kept"]:
        if kept["in_use"]:
            lines.append(f"kept: {kept['kind']} {kept['name']}, {size(kept['bytes'])}: {kept['in_use']}")
    for kind, idle in _by_kind([kept for kept in found["kept"] if not kept["in_use"]]).items():
        lines.append(f"kept: {count(len(idle), kind)}, {size(sum(item['bytes'] for item in idle))}")
    before, after, free = (size(found[key]) for key in ("before_bytes", "after_bytes", "free_bytes"))
    tense = "would take" if found["dry_run"] else "takes"
    lines.append(f"the workdir took {before} and {tense} {after}; the disk has {free} free")
    return _lines(*lines)


def _by_kind(items: Iterable[Removed]) -> dict[str, list[Removed]]:
    found: dict[str, list[Removed]] = {}
    for item in items:
        found.setdefault(item["kind"], []).append(item)
    return found


def _lines(*lines: object) -> Text:
    return Text("\n".join(plain(line, _LONGEST_LINE) for line in lines))
