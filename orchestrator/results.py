"""plan + journal + evidence -> Result, verdict. Judged from the files of the run, never from a stored verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.agent import evidence, journal, record
from orchestrator.errors import IntegrityError
from orchestrator.files import sha256
from orchestrator.plan import Plan, PlannedStage, read_plan
from orchestrator.text import count, listing, plain

Verdict = Literal["passed", "failed", "incomplete", "error"]
State = Literal["running", "ended", "lost"]

EXIT_CODES: Mapping[Verdict, int] = {"passed": 0, "failed": 1, "incomplete": 3, "error": 4}
_FAILED = frozenset({"failed", "timed_out", "stalled", "crashed", "invalid"})


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class ArtifactResult(_Model):
    """A file that the stage owed and delivered; `path` is relative to the run's artifacts/."""

    path: str
    bytes: int
    sha256: str


class StageResult(_Model):
    """The status of one stage, by rule from its evidence."""

    name: str
    status: str
    reason: str
    required: bool
    cuda: bool
    seconds: float | None = None
    exit_code: int | None = None
    tests: dict[str, Any] = {}
    routes: dict[str, str] = {}
    artifacts: list[ArtifactResult] = []
    notes: list[str] = []


class Result(_Model):
    """result.json."""

    verdict: Verdict
    summary: str
    state: State
    commit: str
    tree: str
    dirty: bool
    pod: str
    run_id: str
    path: str
    runbook: dict[str, Any]
    left_out: list[str]
    left_out_reasons: dict[str, str]
    stages: list[StageResult]
    refused: list[str] = []
    error: str | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1) + "\n"


def judge(directory: Path, *, state: State, path: str, refused: Sequence[str] = ()) -> Result:
    """Judge the run in `directory`.

    `state` is what the pod said last, `path` how the result names the directory, `refused` what the pod offered and
    was not allowed to send, as sentences.
    """
    plan = read_plan((directory / "plan.json").read_text(), str(directory / "plan.json"))
    events = read_events(directory)
    error = _run_error(plan, events, state)
    stages = _judge_stages(plan, events, directory)
    ended = any(event["event"] == "run_ended" for event in events)
    verdict = _verdict(stages, error, ended)
    return Result(
        verdict=verdict,
        summary=_summary(verdict, plan, stages),
        state=state,
        commit=plan.commit,
        tree=plan.tree,
        dirty=plan.dirty,
        pod=plan.pod,
        run_id=plan.run_id,
        path=path,
        runbook=plan.runbook.model_dump(),
        left_out=[stage.name for stage in plan.left_out],
        left_out_reasons={stage.name: stage.reason for stage in plan.left_out},
        stages=stages,
        refused=list(refused),
        error=error,
    )


def read_events(directory: Path) -> list[dict[str, Any]]:
    """The run's journal, its hash chain checked; empty if nothing of it has come yet."""
    path = directory / "journal.jsonl"
    if not path.exists():
        return []
    try:
        return journal.read(path.read_bytes())
    except journal.ChainBroken as e:
        raise IntegrityError(f"{path}: {e}") from e


def _judge_stages(plan: Plan, events: list[dict[str, Any]], directory: Path) -> list[StageResult]:
    records = record.by_stage(events)
    statuses: dict[str, str] = {}
    results = []
    for stage in plan.stages:
        result = _judge_stage(stage, records.get(stage.name), directory, statuses)
        statuses[stage.name] = result.status
        results.append(result)
    return results


def _judge_stage(
    stage: PlannedStage, facts: Mapping[str, Any] | None, directory: Path, statuses: Mapping[str, str]
) -> StageResult:
    result = StageResult(
        name=stage.name,
        required=stage.required,
        cuda=stage.cuda,
        status="not_run",
        reason="the run ended before it",
    )
    if facts is None:
        return result
    judgement = evidence.judge_stage(stage.model_dump(mode="json", by_alias=True), facts, directory, statuses)
    status, reason = judgement.status, judgement.reason
    wrong = _unlike_record(facts, directory) if status == "passed" else None
    if wrong:
        status, reason = "invalid", wrong
    return result.model_copy(
        update={
            "status": status,
            "reason": reason,
            "seconds": _number(facts.get("seconds")),
            "exit_code": facts["exit_code"] if isinstance(facts.get("exit_code"), int) else None,
            "notes": list(_notes(facts)),
            "tests": dict(judgement.tests),
            "routes": {op: ", ".join(sorted(taken)) for op, taken in judgement.routes.items()},
            "artifacts": [ArtifactResult(**a) for a in judgement.artifacts],
        }
    )


def _notes(facts: Mapping[str, Any]) -> Iterator[str]:
    """What a reader should know of the stage, whatever its status."""
    for file in _mappings(facts.get("refused")):
        yield f"{plain(file.get('path'))} was left out: {plain(file.get('reason'))}"
    outlived = [str(process.get("command")) for process in _mappings(facts.get("leftovers"))]
    if outlived:
        yield f"processes that outlived it were ended: {listing(outlived)}"


def _mappings(value: object) -> list[Mapping[str, Any]]:
    """The mappings in a list; the journal is the pod's, and need not hold what the agent writes."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _unlike_record(facts: Mapping[str, Any], directory: Path) -> str | None:
    """The first file that is not here as the journal recorded it on the pod, as a sentence."""
    for file in facts["files"]:
        path = directory / str(file["path"])
        if not path.is_file() or path.is_symlink():
            return f"{file['path']} was not brought home"
        if sha256(path) != file["sha256"]:
            return f"{file['path']} is not what the pod recorded (sha256 differs)"
    return None


def _run_error(plan: Plan, events: list[dict[str, Any]], state: State) -> str | None:
    started = next((e for e in events if e["event"] == "run_started"), None)
    if started and started["run_id"] != plan.run_id:
        return f"the journal is of run {started['run_id']}, not of {plan.run_id}"
    broken = next((e for e in events if e["event"] == "agent_error"), None)
    if broken:
        return f"the agent failed on the pod: {broken['error']}"
    if state == "ended" and not any(e["event"] == "run_ended" for e in events):
        return "the pod says that the run ended, its journal does not"
    if state == "lost":
        return "the agent died before the run ended; what ran until then is below"
    return None


def _verdict(stages: list[StageResult], error: str | None, ended: bool) -> Verdict:
    statuses = {stage.status for stage in stages if stage.required}
    if error:
        return "error"
    if statuses & _FAILED:
        return "failed"
    return "passed" if statuses == {"passed"} and ended else "incomplete"


def _summary(verdict: Verdict, plan: Plan, stages: list[StageResult]) -> str:
    """The verdict line: what it says, and what it does not cover."""
    cuda_left_out = sum(stage.cuda for stage in plan.left_out)
    other_left_out = len(plan.left_out) - cuda_left_out
    allowed = sum(int(stage.tests.get("allowed_skips", 0)) for stage in stages)
    not_passed = [s for s in stages if s.status != "passed"]
    optional = [s.name for s in not_passed if not s.required]
    parts = [
        f"{verdict} on {'CUDA' if plan.promises.get('cuda') else 'CPU'}",
        f"{len(stages) - len(not_passed)} of {count(len(stages), 'stage')} passed",
        f"{count(cuda_left_out, 'CUDA stage')} not part of this run" if cuda_left_out else "",
        f"{count(other_left_out, 'other stage')} not part of this run" if other_left_out else "",
        f"{count(allowed, 'allowed skip')}" if allowed else "",
        f"optional and not passed: {', '.join(optional)}" if optional else "",
        "uncommitted changes were not part of this run" if plan.dirty else "",
    ]
    return "; ".join(part for part in parts if part)
