"""plan + journal + evidence -> Result, verdict. Judged from the files of the run, never from a stored verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals
from typing import Any

from orchestrator.errors import IntegrityError, PodFull
from orchestrator.files import is_regular, sha256
from orchestrator.plan.plan import read_plan
from orchestrator.results import causes, notes
from orchestrator.results.model import ArtifactResult, PlanSource, Result, StageResult
from orchestrator.results.summary import Course, summary, told_of_command, told_of_comparison
from orchestrator.shared import journal, stage_record
from orchestrator.shared.answers import RunState
from orchestrator.shared.events import Event
from orchestrator.shared.plan import RUN_ID, Plan, Stage, artifacts_of, has_no_verdict, is_command, with_sabotage
from orchestrator.shared.stage_record import Evidence
from orchestrator.text import number, plain
from orchestrator.told import values
from orchestrator.verdict import routes
from orchestrator.verdict.case import Run
from orchestrator.verdict.rules import judge_stage
from orchestrator.verdict.status import Status, verdict_of

_MOST_UNOWED = 1000
_SHOWN_ONLY = ("output", "test_failed", "sabotage_started")
_MOST_VALUES = 300_000
_VALUES_OF_A_FILE = 4  # path, bytes, sha256, and what holds them


@dataclass(frozen=True)
class Seen:
    """How far the run had come when it was last seen, and what of it is not here.

    `state` is what the pod said last; `refused` is what the pod offered and was not allowed to send, as sentences;
    `left` are the files that the laptop's limits keep on the pod; `journal_bytes` says how much of the journal counts
    (None: all of it); `refusal` is why the disk of a pod whose agent died takes nothing more.
    """

    state: RunState
    refused: Sequence[str] = ()
    left: Collection[str] = ()
    journal_bytes: int | None = None
    refusal: str = ""


def judge(directory: Path, seen: Seen, *, path: str, plan_from: PlanSource = "laptop") -> Result:
    """Judge the run in `directory`, which the result names `path`."""
    plan = read_plan((directory / "plan.json").read_text(errors="replace"), str(directory / "plan.json"))
    events = read_events(directory, seen.journal_bytes, _Judged(directory / "journal.jsonl"))
    error = _out_of_place(plan, directory) or _run_error(plan, events, seen)
    ended_early = _ended_early(plan, events)
    resumed = sum(event["event"] == "run_resumed" for event in events)
    ended = any(event["event"] == "run_ended" for event in events)
    going_on = seen.state == "running" and not ended and ended_early is None
    how_far = "it went on when it was last seen" if going_on else ended_early
    never_ended = "it had not ended when the run was last seen" if going_on else _never_ended(ended_early)
    stages = _judge_stages(plan, events, directory, frozenset(seen.left), never_ended)
    verdict = verdict_of([stage.status for stage in stages if stage.required], error, ended)
    return Result(
        verdict=None if has_no_verdict(plan) else verdict,
        summary=told_of_command(stages, how_far)
        if is_command(plan)
        else told_of_comparison(plan, stages, how_far)
        if "comparison" in plan
        else summary(verdict, plan, stages, Course(how_far, resumed, _strays(events), plan_from, len(seen.left))),
        state=seen.state,
        commit=plan["commit"],
        tree=plan["tree"],
        dirty=plan["dirty"],
        pod=plan["pod"],
        run_id=plan["run_id"],
        path=path,
        runbook=plan["runbook"],
        left_out=[stage["name"] for stage in plan["left_out"]],
        left_out_reasons={stage["name"]: stage["reason"] for stage in plan["left_out"]},
        stages=stages,
        refused=list(seen.refused),
        ended_early=ended_early,
        resumed=resumed,
        plan_from=plan_from,
        error=error,
        causes=causes.common(stages),
        environment_seconds=number(plan["environment"].get("setup_seconds")),
        **_times(events),
    )


def read_events(
    directory: Path, most: int | None = None, keep: Callable[[Event, bytes], bool] = lambda event, line: True
) -> list[Event]:
    """What is to be kept of the run's journal (of its first `most` bytes), its hash chain checked; empty if nothing of
    it has come yet.
    """
    path = directory / "journal.jsonl"
    if not path.exists():
        return []
    try:
        with path.open("rb") as f:
            return journal.read_lines(_until(f, most), keep)
    except journal.ChainBroken as e:
        raise IntegrityError(f"{path}: {e}") from e


def _until(lines: Iterable[bytes], most: int | None) -> Iterator[bytes]:
    """The lines that the first `most` bytes hold."""
    seen = 0
    for line in lines:
        seen += len(line)
        if most is not None and seen > most:
            return
        yield line


class _Judged:
    """Which events are judged: those that are only shown are many. IntegrityError where the others are too many to be
    held; the files that they name are counted where they are fetched.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = 0

    def __call__(self, event: Event, line: bytes) -> bool:
        if event["event"] in _SHOWN_ONLY:
            return False
        files = event.get("files")
        of_files = _VALUES_OF_A_FILE * len(files) if isinstance(files, list) else 0
        self._values += max(0, values(line) - of_files)
        if self._values > _MOST_VALUES:
            raise IntegrityError(f"{self._path} has more than {_MOST_VALUES} values beside the files that it names")
        return True


def _times(events: Sequence[Event]) -> dict[str, Any]:
    """When the run began and ended, and how long that was by the agent's own clock."""
    started = next((event for event in events if event["event"] == "run_started"), None)
    ended = next((event for event in events if event["event"] == "run_ended"), None)
    if not started:
        return {}
    took = number(ended.get("t")) if ended else None
    return {"started": _moment(started), "ended": _moment(ended) if ended else None, "seconds": took}


def _moment(event: Event) -> str | None:
    return plain(event["wall"], 40) if "wall" in event else None


def _judge_stages(
    plan: Plan, events: Sequence[Event], directory: Path, left: frozenset[str], never_ended: str
) -> list[StageResult]:
    run = Run(directory, plan["format"], routes.devices(plan), with_sabotage(plan), never_ended)
    records = stage_record.by_stage(events)
    statuses: dict[str, Status] = {}
    blockers: dict[str, str | None] = {}
    results = []
    names = [stage["name"] for stage in plan["stages"]]
    for position, stage in enumerate(plan["stages"], 1):
        changed = {path for name in names[position:] for path in _overwritten(records.get(name))}
        result = _judge_stage(stage, records.get(stage["name"]), run, statuses, left, changed)
        if result.status == "blocked":
            blockers[stage["name"]] = causes.blocked_by(stage, statuses, blockers)
            result = result.model_copy(update={"blocked_by": blockers[stage["name"]]})
        statuses[stage["name"]] = result.status
        results.append(result)
    return results


def _overwritten(told: Mapping[str, Any] | None) -> list[str]:
    """Files of earlier stages that this one has changed or removed."""
    names = (told or {}).get("overwritten")
    return [f"artifacts/{name}" for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _judge_stage(
    stage: Stage,
    told: Mapping[str, Any] | None,
    run: Run,
    statuses: Mapping[str, Status],
    left: frozenset[str],
    changed: Set[str],
) -> StageResult:
    """`left` are files that are too much for the laptop, `changed` those that a later stage has changed."""
    owed = {f"artifacts/{artifact['path']}" for artifact in artifacts_of(stage)}
    spare = (left | changed) - owed
    at_home = replace(run, not_as_recorded=lambda evidence: _not_as_recorded(evidence, run.directory, spare))
    judgement = judge_stage(at_home, stage, told, statuses)
    facts = told or {}
    unowed = [file for file in notes.mappings(facts.get("files")) if _is_unowed(file, owed)]
    return StageResult(
        name=stage["name"],
        required=stage["required"],
        cuda=stage["cuda"],
        status=judgement.status,
        reason=judgement.reason,
        seconds=number(facts.get("seconds")),
        exit_code=facts["exit_code"] if isinstance(facts.get("exit_code"), int) else None,
        signal=next((name for name in Signals.__members__ if name == facts.get("signal")), None),
        notes=list(notes.of(facts, run, stage["name"], judgement.routes, judgement.tests)),
        doubts=[*notes.doubts(facts), *judgement.doubts],
        tests=judgement.tests,
        routes={op: ", ".join(sorted(taken)) for op, taken in judgement.routes.items()},
        executed=judgement.executed,
        used_cuda=judgement.used_cuda,
        artifacts=[ArtifactResult(**a) for a in judgement.artifacts],
        left=notes.left(facts),
        kills=judgement.kills,
        command=stage["argv"],
        env={**stage["env"], **{name: f"***{name}***" for name in stage["secrets"]}},
        failures=judgement.failures,
        causes=judgement.causes,
        skips=judgement.skips,
        raised=judgement.raised,
        stderr_tail=judgement.tails.get("stderr", []),
        stdout_tail=judgement.tails.get("stdout", []),
        unowed=[_artifact(file) for file in unowed[:_MOST_UNOWED]],
        unowed_more=max(0, len(unowed) - _MOST_UNOWED),
    )


def _is_unowed(file: Mapping[str, Any], owed: Set[str]) -> bool:
    """Whether it was left in artifacts/ and nobody has asked for it."""
    path = str(file.get("path"))
    return path.startswith("artifacts/") and path not in owed


def _artifact(file: Mapping[str, Any]) -> ArtifactResult:
    return ArtifactResult(
        path=plain(str(file.get("path"))[len("artifacts/") :]),
        bytes=int(number(file.get("bytes")) or 0),
        sha256=plain(file.get("sha256"), 64),
    )


def _never_ended(ended_early: str | None) -> str:
    return "the run ended before it" + (f": {ended_early}" if ended_early else "")


def _not_as_recorded(evidence: Evidence, directory: Path, spare: Set[str]) -> str | None:
    """The first file that is not here as the journal recorded it on the pod, as a sentence.

    Those of `spare`, artifacts that nothing asks for and that are too much for the laptop, or that a later stage
    has changed, need not be here.
    """
    for file in evidence["files"]:
        path = os.path.join(directory, file["path"])
        if file["path"] in spare and file["path"].startswith("artifacts/") and not os.path.lexists(path):
            continue
        if not is_regular(path):
            return f"{file['path']} was not brought home"
        if sha256(path) != file["sha256"]:
            return f"{file['path']} is not what the pod recorded (sha256 differs)"
    return None


def _strays(events: Sequence[Event]) -> str:
    """What may have disturbed the run, of processes that were there before it."""
    told = [event for event in events if event["event"] == "leftovers_ended"]
    left = sum(len(found) for event in told if isinstance(found := event.get("left"), list))
    if left:
        return f"{left} of an earlier run's processes could not be ended"
    by_group = any(event.get("known_by_mark") is False for event in told)
    return "processes were known by their group only" if by_group else ""


def _out_of_place(plan: Plan, directory: Path) -> str | None:
    """A run that lies under the name of another one would be taken for that."""
    name = directory.name
    is_another = RUN_ID.fullmatch(name) and name != plan["run_id"]
    return f"the folder is called as run {name}, and holds run {plan['run_id']}" if is_another else None


def _run_error(plan: Plan, events: Sequence[Event], seen: Seen) -> str | None:
    started = next((e for e in events if e["event"] == "run_started"), None)
    if started and started.get("run_id") != plan["run_id"]:
        return f"the journal is of run {plain(started.get('run_id'))}, not of {plan['run_id']}"
    if started and journal.format_of(started) != plan["format"]:
        return f"the journal has format {plain(started.get('format'))}, its plan {plan['format']}"
    broken = next((e for e in events if e["event"] == "agent_error"), None)
    if broken:
        return f"the agent failed on the pod: {_of_the_disk(plan, plain(broken.get('error')))}"
    if seen.state == "ended" and not any(e["event"] == "run_ended" for e in events):
        return "the pod says that the run ended, its journal does not"
    if seen.state == "lost" and not events:
        return "the run never began: its launch failed, or its agent died at once; start a new one"
    if seen.state == "lost":
        why = f": {_of_the_disk(plan, seen.refusal)}" if seen.refusal else ""
        return (
            f"the agent died before the run ended{why}; what ran until then is below: nsa-pod validate "
            f"--pod {plan['pod']} --resume {plan['run_id']} goes on with it"
        )
    return _mixed(events)


def _of_the_disk(plan: Plan, said: str) -> str:
    """What the pod said, and what to do where that is of its disk."""
    return str(PodFull.of(f"pod {plan['pod']!r}", said) or said)


def _mixed(events: Sequence[Event]) -> str | None:
    """What a run that was gone on with mixes that must not be mixed; its agent refuses it too."""
    gpus = [_uuids(e) for e in events if e["event"] in ("run_started", "run_resumed")]
    environments: dict[str, list[str]] = {}
    for event in events:
        if event["event"] == "environment_checked":
            environments.setdefault(str(event.get("beside", "")), []).append(str(event.get("fingerprint")))
    seen: Sequence[tuple[str, Sequence[object]]] = (
        ("GPUs", gpus),
        *(("environments", found) for found in environments.values()),
    )
    different = next((what for what, found in seen if any(x != found[0] for x in found)), None)
    return f"the run was gone on with on other {different} than it began with" if different else None


def _uuids(event: Event) -> list[str]:
    return sorted(str(gpu.get("uuid")) for gpu in notes.mappings(event.get("gpus")))


def _ended_early(plan: Plan, events: Sequence[Event]) -> str | None:
    """What ended the run before its stages were through, as a clause; None if nothing did."""
    for event in events:
        by = plain(event.get("by", "someone"))
        if event["event"] == "cancelled":
            return f"the pod was taken from it by {by}" if event.get("stolen") else f"it was cancelled by {by}"
        if event["event"] == "limit_reached":
            limit = plan["limit"]["given"] if plan["limit"] else plain(event.get("limit"))
            return f"its limit was reached: {limit}"
    return None
