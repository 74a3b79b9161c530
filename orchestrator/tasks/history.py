"""history: rows of the runs that are kept here over their commits, on one kind of pod."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from orchestrator import figures
from orchestrator.config.runbook import find_runbook
from orchestrator.errors import DiskError, InputError
from orchestrator.figures.history import (
    FORMAT,
    Measured,
    Recommendation,
    Threshold,
    Trend,
    from_json,
    measured,
    recommended,
    to_json,
    trends,
)
from orchestrator.figures.model import Identity
from orchestrator.files import write_atomically
from orchestrator.shared.files import read_json
from orchestrator.shared.plan import Plan, is_command
from orchestrator.shared.run_ids import launched_at
from orchestrator.store.run_directory import RunDirectory, kept
from orchestrator.text import count, plain
from orchestrator.verdict.status import Status, known

CACHE = ".figures.json"
_COMMITTED = re.compile(rb"^committer .* (\d{1,12}) [+-]\d{4}$", re.MULTILINE)
_HEADER = "# Thresholds that `nsa-pod history` recommends"


@dataclass(frozen=True)
class Wish:
    """Which runs: on a pod, on pods with a device (None: the newest run's). Which rows: of a stage, with a text."""

    pod: str | None = None
    device: str | None = None
    stage: str | None = None
    row: str | None = None
    since: datetime | None = None

    def wants(self, identity: Identity) -> bool:
        in_stage = self.stage in (None, identity.stage)
        return in_stage and (self.row is None or self.row.casefold() in str(identity).casefold())


@dataclass(frozen=True)
class History:
    """`others` are the runs on other kinds of pods, by device."""

    device: str
    runs: Sequence[Measured]
    trends: Sequence[Trend]
    others: dict[str, int]
    recommendations: Sequence[Recommendation] = ()


def history(artifacts: Path, repo: Path, wish: Wish, runbook: str | None) -> History:
    """Of the runs kept under `artifacts`; with `runbook`, the thresholds that it asks for.

    InputError if nothing of what is wished for was measured.
    """
    found = [run for run in measured_runs(artifacts, repo, wish.since) if wish.pod in (None, run.pod)]
    by_device = Counter(run.device for run in found)
    device = wish.device or (found[0].device if found else "")
    runs = [run for run in found if run.device == device]
    rows = trends(runs, wish.wants)
    if not rows:
        seen = f"; there are runs on {', '.join(by_device)}" if by_device and device not in by_device else ""
        raise InputError(
            f"no run that is kept in {artifacts} has such figures{seen}: a runbook says what its artifacts measure "
            "(docs/figures.md)"
        )
    others = {name: number for name, number in by_device.items() if name != device}
    asked = thresholds(runbook, repo) if runbook else []
    return History(device, runs, rows, others, [recommended(one, runs) for one in asked])


def measured_runs(artifacts: Path, repo: Path, since: datetime | None = None) -> list[Measured]:
    """Of the runs that are kept, newest first, as they were settled; those that measured nothing, or are damaged, are
    passed over. What each measured is remembered in one file beside them.
    """
    cache = artifacts / "runner" / CACHE
    remembered = read_json(cache)
    told: dict[str, Any] = {}
    found = []
    for run in kept(artifacts, repo):
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            stamp = _stamp(run)
            one = remembered.get(run.path.name)
            if one is None or one["stamp"] != stamp:
                one = {**to_json(_measured(run)), "stamp": stamp}
            told[run.path.name] = one
            found.append(from_json(one))
    if told != remembered:
        with suppress(DiskError):  # a folder that can only be read remembers nothing
            write_atomically(cache, json.dumps(told))
    return [run for run in found if run.values and _is_since(run.run_id, since)]


def _is_since(run_id: str, since: datetime | None) -> bool:
    began = launched_at(run_id)
    return since is None or (began is not None and began >= since)


def thresholds(runbook: str, repo: Path) -> list[Threshold]:
    """Those that a runbook of the working tree asks for."""
    asked = find_runbook(runbook, repo).runbook.thresholds
    if not asked:
        raise InputError(f"runbook {runbook!r} asks for no thresholds: expected a key `thresholds` (docs/sharing.md)")
    return [Threshold(name, one.stage, one.along, one.faster, one.than) for name, one in asked.items()]


def write_thresholds(found: History, path: Path) -> None:
    """The recommended values as YAML, each below the rows that it is from.

    InputError for a file that something else wrote, and where nothing is recommended.
    """
    if path.exists() and not path.read_text(errors="replace").startswith(_HEADER):
        raise InputError(f"{path} was not written by nsa-pod history: expected a new file")
    if all(one.value is None for one in found.recommendations):
        raise InputError(f"nothing is recommended, so {path} is not written")
    lines = [f"{_HEADER} for {plain(found.device)}, from {count(len(found.runs), 'run')}; ratios below 1 are better."]
    for one in found.recommendations:
        lines += ["", f"# {one.name}: {one.why}"]
        lines += [
            f"#   at {r.at:g}: {r.middle:.3f} ({r.low:.3f} to {r.high:.3f}) in {count(r.runs, 'run')}" for r in one.rows
        ]
        if one.value is not None:
            number = int(one.value) if one.value == int(one.value) else one.value
            lines.append(yaml.safe_dump({one.name: number}).strip())
    write_atomically(path, "\n".join(lines) + "\n")


def _stamp(run: RunDirectory) -> list[int]:
    """Another one for a run that was settled anew."""
    settled = (run.path / "result.json").stat()
    return [settled.st_mtime_ns, settled.st_size, FORMAT]


def _measured(run: RunDirectory) -> Measured:
    plan: Plan = json.loads(run.plan_file.read_bytes())
    if is_command(plan) or "comparison" in plan:  # which times two commits, and by the bench files of one
        return Measured(run.path.name, plan["commit"], 0.0, plan["pod"], "", "", {}, ())
    return measured(figures.of_run(run.path, plan, _statuses(run)), _moment(plan))


def _statuses(run: RunDirectory) -> dict[str, Status]:
    stages: Iterable[dict[str, object]] = json.loads((run.path / "result.json").read_bytes())["stages"]
    told = {str(stage["name"]): known(stage["status"]) for stage in stages}
    return {name: status for name, status in told.items() if status}


def _moment(plan: Plan) -> float:
    """When its commit was made, by git; 0 if that cannot be told."""
    found = _COMMITTED.search(base64.b64decode(plan["commit_object"]))
    return float(found[1]) if found else 0.0
