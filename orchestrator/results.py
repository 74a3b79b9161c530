"""plan + journal + evidence -> Result, verdict. Judged from the files of the run, never from a stored verdict."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, GetPydanticSchema
from pydantic_core import core_schema

from orchestrator.errors import IntegrityError
from orchestrator.files import is_regular, sha256
from orchestrator.plan.plan import read_plan
from orchestrator.shared import journal, stage_record, telemetry
from orchestrator.shared.answers import RunState
from orchestrator.shared.events import Event
from orchestrator.shared.plan import Plan, RunbookOrigin, Stage, is_not_the_commits, with_sabotage
from orchestrator.shared.schema import first_error
from orchestrator.shared.stage_record import Built, Evidence, Executed, Left
from orchestrator.text import count, listing, number, plain
from orchestrator.verdict import routes
from orchestrator.verdict.case import Run
from orchestrator.verdict.rules import judge_stage
from orchestrator.verdict.sabotage import Kills
from orchestrator.verdict.status import OUTCOMES, Status, Verdict, verdict_of
from orchestrator.verdict.tests import Summary as TestSummary

PlanSource = Literal["laptop", "pod"]
# pydantic reads a TypedDict of `typing` from Python 3.12 on only.
_AS_IT_IS = GetPydanticSchema(lambda source, handler: core_schema.dict_schema())


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class ArtifactResult(_Model):
    """A file that was expected of the stage and delivered; `path` is relative to the run's artifacts/."""

    path: str
    bytes: int
    sha256: str


class StageResult(_Model):
    """The status of one stage, by rule from its evidence."""

    name: str
    status: Status
    reason: str
    required: bool
    cuda: bool
    seconds: float | None = None
    exit_code: int | None = None
    tests: Annotated[TestSummary, _AS_IT_IS] = {}
    routes: dict[str, str] = {}
    executed: Annotated[dict[str, Executed], _AS_IT_IS] = {}
    used_cuda: bool = False
    artifacts: list[ArtifactResult] = []
    left: Annotated[Left, _AS_IT_IS] | None = None
    kills: Annotated[Kills, _AS_IT_IS] = {}
    notes: list[str] = []


class Result(_Model):
    """result.json.

    `ended_early` says what ended the run before its stages were through, `resumed` how often it was gone on with after
    its agent had died, `plan_from` whether it is judged by the plan that was launched from here or by the pod's copy.
    """

    verdict: Verdict
    summary: str
    state: RunState
    commit: str
    tree: str
    dirty: bool
    pod: str
    run_id: str
    path: str
    runbook: Annotated[RunbookOrigin, _AS_IT_IS]
    left_out: list[str]
    left_out_reasons: dict[str, str]
    stages: list[StageResult]
    refused: list[str] = []
    ended_early: str | None = None
    resumed: int = 0
    plan_from: PlanSource = "laptop"
    error: str | None = None

    @property
    def exit_code(self) -> int:
        return OUTCOMES[self.verdict].exit_code

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1) + "\n"


@dataclass(frozen=True)
class Seen:
    """How far the run had come when it was last seen, and what of it is not here.

    `state` is what the pod said last; `refused` is what the pod offered and was not allowed to send, as sentences;
    `left` are the files that the laptop's limits keep on the pod; `journal_bytes` says how much of the journal counts
    (None: all of it).
    """

    state: RunState
    refused: Sequence[str] = ()
    left: Collection[str] = ()
    journal_bytes: int | None = None


def judge(directory: Path, seen: Seen, *, path: str, plan_from: PlanSource = "laptop") -> Result:
    """Judge the run in `directory`, which the result names `path`."""
    plan = read_plan((directory / "plan.json").read_text(errors="replace"), str(directory / "plan.json"))
    events = read_events(directory, seen.journal_bytes)
    error = _run_error(plan, events, seen.state)
    ended_early = _ended_early(plan, events)
    resumed = sum(event["event"] == "run_resumed" for event in events)
    ended = any(event["event"] == "run_ended" for event in events)
    going_on = seen.state == "running" and not ended and ended_early is None
    how_far = "it went on when it was last seen" if going_on else ended_early
    never_ended = "it had not ended when the run was last seen" if going_on else _never_ended(ended_early)
    stages = _judge_stages(plan, events, directory, frozenset(seen.left), never_ended)
    verdict = verdict_of([stage.status for stage in stages if stage.required], error, ended)
    return Result(
        verdict=verdict,
        summary=_summary(verdict, plan, stages, how_far, resumed, plan_from, len(seen.left)),
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
    )


def read_events(directory: Path, most: int | None = None) -> list[Event]:
    """The run's journal (its first `most` bytes), its hash chain checked; empty if nothing of it has come yet."""
    path = directory / "journal.jsonl"
    if not path.exists():
        return []
    try:
        with path.open("rb") as f:
            return journal.read_lines(f) if most is None else journal.read(f.read(most))
    except journal.ChainBroken as e:
        raise IntegrityError(f"{path}: {e}") from e


def _judge_stages(
    plan: Plan, events: Sequence[Event], directory: Path, left: frozenset[str], never_ended: str
) -> list[StageResult]:
    run = Run(directory, plan["format"], routes.devices(plan), with_sabotage(plan), never_ended)
    records = stage_record.by_stage(events)
    statuses: dict[str, Status] = {}
    results = []
    for stage in plan["stages"]:
        result = _judge_stage(stage, records.get(stage["name"]), run, statuses, left)
        statuses[stage["name"]] = result.status
        results.append(result)
    return results


def _judge_stage(
    stage: Stage,
    told: Mapping[str, Any] | None,
    run: Run,
    statuses: Mapping[str, Status],
    left: frozenset[str],
) -> StageResult:
    spare = left - {f"artifacts/{artifact['path']}" for artifact in stage["expect"].get("artifacts") or ()}
    at_home = replace(run, not_as_recorded=lambda evidence: _not_as_recorded(evidence, run.directory, spare))
    judgement = judge_stage(at_home, stage, told, statuses)
    return StageResult(
        name=stage["name"],
        required=stage["required"],
        cuda=stage["cuda"],
        status=judgement.status,
        reason=judgement.reason,
        seconds=number((told or {}).get("seconds")),
        exit_code=told["exit_code"] if told and isinstance(told.get("exit_code"), int) else None,
        notes=[
            *_notes(told or {}),
            *_at_their_word(run, judgement.routes),
            *telemetry.summaries(telemetry.read(run.directory / "stages" / stage["name"] / telemetry.FILE)),
        ],
        tests=judgement.tests,
        routes={op: ", ".join(sorted(taken)) for op, taken in judgement.routes.items()},
        executed=judgement.executed,
        used_cuda=judgement.used_cuda,
        artifacts=[ArtifactResult(**a) for a in judgement.artifacts],
        left=_left(told or {}),
        kills=judgement.kills,
    )


def _left(facts: Mapping[str, Any]) -> Left | None:
    """What it left in the tree, if it left anything."""
    left = facts.get("left")
    if first_error(left, Left, "left") or not left["count"]:  # type: ignore[index]
        return None
    return Left(count=left["count"], first=[plain(path) for path in left["first"]])  # type: ignore[index]


def _never_ended(ended_early: str | None) -> str:
    return "the run ended before it" + (f": {ended_early}" if ended_early else "")


def _notes(facts: Mapping[str, Any]) -> Iterator[str]:
    """What a reader should know of the stage, whatever its status."""
    redacted = facts.get("redacted")
    for file, names in redacted.items() if isinstance(redacted, dict) else ():
        yield f"secret values were replaced in its {plain(file)}: {listing(names if isinstance(names, list) else [])}"
    for file in _mappings(facts.get("refused")):
        yield f"{plain(file.get('path'))} was left out: {plain(file.get('reason'))}"
    unknown = facts["gpu"].get("unknown") if isinstance(facts.get("gpu"), dict) else None
    if unknown:
        yield f"whether someone else used the GPU could not be checked: {plain(unknown)}"
    left = _left(facts)
    if left:
        yield f"left in the tree, and removed before the next stage: {_some(left)}"
    built = facts.get("built")
    if built and not first_error(built, Built, "built"):
        yield f"built in the tree, for the stages after it: {_some(built)}"
    tree = facts.get("tree")
    set_back = tree.get("set_back") if isinstance(tree, dict) else None
    if isinstance(set_back, list) and set_back:
        yield f"data of the commit was written while it ran, and is as it was: {listing(set_back)}"
    outlived = [_outlived(process) for process in _mappings(facts.get("leftovers"))]
    if outlived:
        yield f"processes that outlived it were ended: {listing(outlived)}"


def _some(told: Left | Built) -> str:
    """The first of them, and how many more there are."""
    more = told["count"] - len(told["first"])
    return ", ".join(map(plain, told["first"])) + (f" and {more} more" if more > 0 else "")


def _at_their_word(run: Run, taken: routes.Routes) -> Iterator[str]:
    for operation in routes.at_their_word(taken) if run.format > 1 else ():
        yield f"route.{plain(operation)} on the CPU is what its tests say: nothing there can be seen"


def _outlived(process: Mapping[str, Any]) -> str:
    held = process.get("gpu_mib")
    program, blank, rest = str(process.get("command")).partition(" ")
    command = program.rpartition("/")[2] + blank + rest
    return (f"(with {held} MiB of a GPU) " if isinstance(held, int) else "") + command


def _mappings(value: object) -> list[Mapping[str, Any]]:
    """The mappings in a list; the journal is the pod's, and need not hold what the agent writes."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _not_as_recorded(evidence: Evidence, directory: Path, spare: Set[str]) -> str | None:
    """The first file that is not here as the journal recorded it on the pod, as a sentence.

    Those of `spare`, artifacts that nothing asks for and that are too much for the laptop, need not be here.
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


def _run_error(plan: Plan, events: Sequence[Event], state: RunState) -> str | None:
    started = next((e for e in events if e["event"] == "run_started"), None)
    if started and started.get("run_id") != plan["run_id"]:
        return f"the journal is of run {plain(started.get('run_id'))}, not of {plan['run_id']}"
    if started and journal.format_of(started) != plan["format"]:
        return f"the journal has format {plain(started.get('format'))}, its plan {plan['format']}"
    broken = next((e for e in events if e["event"] == "agent_error"), None)
    if broken:
        return f"the agent failed on the pod: {plain(broken.get('error'))}"
    if state == "ended" and not any(e["event"] == "run_ended" for e in events):
        return "the pod says that the run ended, its journal does not"
    if state == "lost" and not events:
        return "the run never began: its launch failed, or its agent died at once; start a new one"
    if state == "lost":
        return (
            "the agent died before the run ended; what ran until then is below: nsa-pod validate "
            f"--pod {plan['pod']} --resume {plan['run_id']} goes on with it"
        )
    return _mixed(events)


def _mixed(events: Sequence[Event]) -> str | None:
    """What a run that was gone on with mixes that must not be mixed; its agent refuses it too."""
    seen = (
        ("GPUs", [_uuids(e) for e in events if e["event"] in ("run_started", "run_resumed")]),
        ("environments", [str(e.get("fingerprint")) for e in events if e["event"] == "environment_checked"]),
    )
    different = next((what for what, found in seen if any(x != found[0] for x in found)), None)
    return f"the run was gone on with on other {different} than it began with" if different else None


def _uuids(event: Event) -> list[str]:
    return sorted(str(gpu.get("uuid")) for gpu in _mappings(event.get("gpus")))


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


def _summary(
    verdict: Verdict,
    plan: Plan,
    stages: list[StageResult],
    how_far: str | None,
    resumed: int,
    plan_from: PlanSource,
    left: int,
) -> str:
    """The verdict line: what it says, and what it does not cover; `how_far` the run went, if not to its end."""
    cuda_left_out = sum(stage["cuda"] for stage in plan["left_out"])
    other_left_out = len(plan["left_out"]) - cuda_left_out
    allowed = sum(int(stage.tests.get("allowed_skips", 0)) for stage in stages)
    not_passed = [s for s in stages if s.status != "passed"]
    how_many = f"{len(stages) - len(not_passed)} of {count(len(stages), 'stage')} passed"
    on_gpu = sum(stage.used_cuda for stage in stages)
    optional = [s.name for s in not_passed if not s.required]
    parts = [
        f"{verdict} on {_device(verdict, plan, stages)}",
        how_many if not_passed else "",
        f"{count(cuda_left_out, 'CUDA stage')} not part of this run" if cuda_left_out else "",
        f"{count(other_left_out, 'other stage')} not part of this run" if other_left_out else "",
        f"{count(allowed, 'allowed skip')}" if allowed else "",
        _sabotage(plan, stages),
        how_many if not not_passed else "",
        f"optional and not passed: {', '.join(optional)}" if optional else "",
        f"{count(on_gpu, 'stage')} ran kernels on the GPU" if plan["promises"]["cuda"] else "",
        how_far or "",
        f"resumed {'once' if resumed == 1 else count(resumed, 'time')} after its agent died" if resumed else "",
        "uncommitted changes were not part of this run" if plan["dirty"] else "",
        "judged by a runbook that the commit does not hold" if is_not_the_commits(plan["runbook"]) else "",
        f"{count(left, 'file')} stay on the pod" if left else "",
        "judged by the pod's copy of the plan, for it was not launched from here" if plan_from == "pod" else "",
    ]
    return "; ".join(part for part in parts if part)


def _sabotage(plan: Plan, stages: list[StageResult]) -> str:
    """How much of the sabotage the tests noticed, or that it was left out."""
    asking = [s for s in plan["stages"] if s["expect"].get("kills") or s["expect"].get("mutants")]
    if asking and not with_sabotage(plan):
        return f"without the sabotage of {count(len(asking), 'stage')} (--no-sabotage)"
    killed = sum(stage.kills.get("killed", 0) for stage in stages)
    tried = sum(stage.kills.get("of", 0) for stage in stages)
    return f"{killed} of {count(tried, 'planted fault')} noticed" if tried else ""


def _device(verdict: Verdict, plan: Plan, stages: list[StageResult]) -> str:
    """CUDA where the verdict is about stages that need it, and a green one where one of them ran there; else CPU."""
    if not plan["promises"]["cuda"]:
        return "CPU"
    about = [
        stage
        for stage in stages
        if stage.cuda
        and (verdict != "passed" or (stage.status == "passed" and (stage.used_cuda or plan["format"] == 1)))
    ]
    return "CUDA" if about else "CPU"
