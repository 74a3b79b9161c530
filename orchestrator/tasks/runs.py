"""The runs that there are: on a pod, or kept here; which of them are wanted."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypedDict

from orchestrator.errors import InputError
from orchestrator.git.repository import title_of
from orchestrator.plan.limits import duration
from orchestrator.pod.session import PodSession
from orchestrator.shared.answers import RunState, RunSummary
from orchestrator.shared.plan import is_command
from orchestrator.shared.run_ids import launched_at, order
from orchestrator.store.run_directory import RunDirectory, kept
from orchestrator.text import number, plain
from orchestrator.verdict.status import Verdict

_JOURNAL_END = 1 << 16


class Run(TypedDict, total=False):
    """A run: when it began (UTC), how long it took in seconds, what that cost, the first line of its commit's message,
    and the verdict as it was settled here, which a command has none of; `error` says what broke it, or its files here.
    """

    run_id: str
    date: str
    pod: str | None
    commit: str | None
    title: str
    runbook: str | None
    who: str | None
    state: RunState
    verdict: Verdict | None
    seconds: float | None
    cost: float | None
    error: str


@dataclass(frozen=True)
class Filter:
    """Which runs are wanted: of a pod, of a commit, with one of some verdicts, begun since a moment."""

    pod: str | None = None
    commit: str | None = None
    verdicts: Collection[str] = ()
    since: datetime | None = None

    def wants(self, run: Run) -> bool:
        return (
            self.pod in (None, run.get("pod"))
            and self.commit in (None, run.get("commit"))
            and (not self.verdicts or run.get("verdict") in self.verdicts)
            and (self.since is None or run.get("date", "") >= _shown(self.since))
        )


def since(text: str, now: datetime | None = None) -> datetime:
    """The moment of `2026-11-20`, `2026-11-20T08:00` (UTC unless it says more), or so long ago: `7d`, `90m`."""
    now = now or datetime.now(timezone.utc)
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except ValueError:
        pass
    try:
        return now - timedelta(seconds=duration(text))
    except (InputError, OverflowError) as e:
        raise InputError(f"--since: expected a date such as 2026-11-20, or 7d, 12h, 90m ago, not {text!r}") from e


def on_pod(session: PodSession, artifacts: Path, repo: Path, wanted: Filter) -> list[Run]:
    """The runs on the pod, and of the same pod those that are kept here, newest first."""
    with session.open() as agent:
        told = agent.told_of_runs()
    if told["more"] > 0:
        session.progress.warn(f"pod {session.pod.name!r} has {told['more']} older runs, which are not listed")
    found = {run["run_id"]: run for run in _kept(artifacts, repo) if run.get("pod") in (None, session.pod.name)}
    for run in told["runs"]:
        there = _told(run, session.pod.name)
        found[run["run_id"]] = {**there, **found.get(run["run_id"], there), "state": run["state"]}
    return sorted(filter(wanted.wants, found.values()), key=lambda run: order(run["run_id"]), reverse=True)


def kept_here(artifacts: Path, repo: Path, wanted: Filter = Filter()) -> list[Run]:
    """The runs kept under `artifacts`, newest first, as they were settled: `report` judges one again."""
    return list(filter(wanted.wants, _kept(artifacts, repo)))


def _told(run: RunSummary, pod: str) -> Run:
    """What the pod says of a run."""
    return {
        "run_id": run["run_id"],
        "date": _date(run["run_id"]),
        "pod": pod,
        "commit": run["commit"],
        "runbook": f"{run['runbook']}, no verdict" if run.get("command") else run["runbook"],
        "who": run.get("who"),
        "state": run["state"],
    }


def _kept(artifacts: Path, repo: Path) -> Iterable[Run]:
    for directory in kept(artifacts, repo):
        try:
            yield _read(directory)
        except FileNotFoundError:  # its pod has just refused it
            continue
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
            name = directory.path.name  # one that is damaged does not hide the others
            yield {"run_id": name, "date": _date(name), "verdict": "error", "error": f"it is damaged: {plain(e)}"}


def _read(directory: RunDirectory) -> Run:
    plan = json.loads(directory.plan_file.read_bytes())
    result = directory.path / "result.json"
    settled = json.loads(result.read_bytes()) if result.is_file() else {}
    seconds = _seconds(directory.journal_file)
    price = number(plan["cost_per_hour"])
    run: Run = {
        "run_id": directory.path.name,
        "date": _date(directory.path.name),
        "pod": plan["pod"],
        "commit": plan["commit"],
        "title": title_of(base64.b64decode(plan["commit_object"])),
        "runbook": _what(plan),
        "state": settled.get("state", "running"),
        "verdict": settled.get("verdict"),
        "seconds": seconds,
        "cost": None if price is None or seconds is None else round(seconds * price / 3600, 4),
    }
    return {**run, "error": settled["error"]} if settled.get("error") else run


def _what(plan: Mapping[str, Any]) -> str:
    """The runbook, the command, or the commits that are compared."""
    if "comparison" in plan:
        return f"compare: {plan['comparison']['a'][:7]} with {plan['comparison']['b'][:7]}"
    argv = plan["stages"][0]["argv"] if is_command(plan) else []
    return f"command: {plain(' '.join(argv))}" if argv else str(plan["runbook"]["name"])


def _seconds(journal: Path) -> float | None:
    """From the run's beginning to the last event that is here, by the agent's clock."""
    try:
        with journal.open("rb") as f:
            f.seek(max(0, f.seek(0, 2) - _JOURNAL_END))
            last = f.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
        return number(json.loads(last)["t"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # none, half of one, or a very long line
        return None


def _date(run_id: str) -> str:
    moment = launched_at(run_id)
    return _shown(moment) if moment else ""


def _shown(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
