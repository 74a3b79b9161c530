"""What stages took in earlier runs on a pod, as far as their results are kept on this laptop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from orchestrator.config.inventory import Pod
from orchestrator.errors import NsaPodError
from orchestrator.plan.limits import History, StageKey
from orchestrator.plan.plan import read_plan
from orchestrator.results import Result, read_events
from orchestrator.shared.events import Event
from orchestrator.shared.run_ids import order
from orchestrator.store import launches
from orchestrator.store.run_directory import kept, open_directory
from orchestrator.text import number

_MOST_RUNS = 5
_MOST_LOOKED_AT = 100


def history(pod: Pod, artifacts: Path, repo: Path) -> History:
    """Of the newest runs of `repo` on `pod` that this laptop launched or keeps under `artifacts`; stages that passed
    count.
    """
    durations: dict[StageKey, list[float]] = {}
    runs = 0
    for directory in _directories(pod, artifacts, repo)[:_MOST_LOOKED_AT]:
        found = dict(_durations(directory, pod.name))
        for key, seconds in found.items():
            durations.setdefault(key, []).append(seconds)
        runs += bool(found)
        if runs == _MOST_RUNS:
            break
    return History(runs, durations)


def _directories(pod: Pod, artifacts: Path, repo: Path) -> list[Path]:
    """Newest first; run ids begin with their time."""
    ours = (launch for launch in launches.launches(pod) if launch.repo == str(repo))
    launched = (open_directory(Path(launch.directory), repo).path for launch in ours)
    here = (run.path for run in kept(artifacts, repo))
    return sorted({*launched, *here}, key=lambda path: order(path.name), reverse=True)


def _durations(directory: Path, pod: str) -> Iterator[tuple[StageKey, float]]:
    """None of a run that is not whole, or not of this pod: it is only an estimate that misses it."""
    with suppress(OSError, ValidationError, NsaPodError):
        plan = read_plan((directory / "plan.json").read_text(errors="replace"), str(directory))
        result = Result.model_validate_json((directory / "result.json").read_bytes())
        argv = {stage["name"]: tuple(stage["argv"]) for stage in plan["stages"]} if plan["pod"] == pod else {}
        took = _took(read_events(directory))
        for stage in result.stages:
            if stage.status == "passed" and stage.name in argv and stage.name in took:
                yield (stage.name, argv[stage.name]), took[stage.name]


def _took(events: Iterable[Event]) -> dict[str, float]:
    """By stage, from its beginning to its record: planted faults take their time too."""
    moments: dict[str, dict[str, float]] = {}
    for event in events:
        t = number(event.get("t"))
        if t is not None:
            moments.setdefault(str(event.get("stage")), {})[event["event"]] = t
    return {
        stage: round(found["stage_ended"] - found["stage_started"], 3)
        for stage, found in moments.items()
        if found.keys() >= {"stage_started", "stage_ended"}
    }
