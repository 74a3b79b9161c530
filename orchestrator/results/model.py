"""What result.json holds."""

from __future__ import annotations

import json
from signal import Signals
from typing import Annotated, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema
from pydantic_core import core_schema

from orchestrator.shared.answers import RunState
from orchestrator.shared.plan import RunbookOrigin
from orchestrator.shared.stage_record import Executed, Left
from orchestrator.verdict.failures import Cause, Failure
from orchestrator.verdict.raised import Raised
from orchestrator.verdict.sabotage import Kills
from orchestrator.verdict.status import OUTCOMES, Status, Verdict
from orchestrator.verdict.tests import Skips
from orchestrator.verdict.tests import Summary as TestSummary

PlanSource = Literal["laptop", "pod"]
OWN_END: tuple[Status, ...] = ("passed", "failed", "crashed", "invalid", "skipped")
"""What becomes of a stage that nothing but itself has ended."""
_SIGNALLED = 128
# pydantic reads a TypedDict of `typing` from Python 3.12 on only.
_AS_IT_IS = GetPydanticSchema(lambda source, handler: core_schema.dict_schema())
_AS_THEY_ARE = GetPydanticSchema(lambda source, handler: core_schema.list_schema())


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class ArtifactResult(_Model):
    """A file that was expected of the stage and delivered; `path` is relative to the run's artifacts/."""

    path: str
    bytes: int
    sha256: str


class StageResult(_Model):
    """The status of one stage, by rule from its evidence.

    `command` and `env` are what the plan has it run with, secrets by name. Of a stage that did not pass, `failures` are
    its first failed tests, `raised` the exception of a program, the tails the last lines that it printed, and
    `blocked_by` the stage that it waited for. `skips` are shortfalls by why; `unowed` what it delivered besides.
    """

    name: str
    status: Status
    reason: str
    required: bool
    cuda: bool
    seconds: float | None = None
    exit_code: int | None = None
    signal: Annotated[str | None, Field(exclude=True)] = None
    tests: Annotated[TestSummary, _AS_IT_IS] = {}
    routes: dict[str, str] = {}
    executed: Annotated[dict[str, Executed], _AS_IT_IS] = {}
    used_cuda: bool = False
    artifacts: list[ArtifactResult] = []
    left: Annotated[Left, _AS_IT_IS] | None = None
    kills: Annotated[Kills, _AS_IT_IS] = {}
    notes: list[str] = []
    doubts: list[str] = []
    command: list[str] = []
    env: dict[str, str] = {}
    blocked_by: str | None = None
    failures: Annotated[list[Failure], _AS_THEY_ARE] = []
    causes: Annotated[list[Cause], _AS_THEY_ARE] = []
    skips: Annotated[list[Skips], _AS_THEY_ARE] = []
    raised: Annotated[Raised, _AS_IT_IS] | None = None
    stderr_tail: list[str] = []
    stdout_tail: list[str] = []
    unowed: list[ArtifactResult] = []
    unowed_more: int = 0


class CommonCause(TypedDict):
    """A sentence on what is behind several failures: how many, in which stages."""

    cause: str
    count: int
    stages: list[str]


class Result(_Model):
    """result.json.

    `ended_early` says what ended the run before its stages were through, `resumed` how often it was gone on with after
    its agent had died, `plan_from` whether it is judged by the plan that was launched from here or by the pod's copy.
    `notes` are what the last passed run of its runbook had and it has not; `causes` are those of more than one failure;
    `seconds` is the time from `started` to `ended`, which are the pod's.
    A command (`nsa-pod run`) and a comparison have no verdict.
    """

    verdict: Verdict | None = None
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
    notes: list[str] = []
    causes: Annotated[list[CommonCause], _AS_THEY_ARE] = []
    started: str | None = None
    ended: str | None = None
    seconds: float | None = None
    environment_seconds: float | None = None

    @property
    def statuses(self) -> dict[str, Status]:
        """By the names of the stages."""
        return {stage.name: stage.status for stage in self.stages}

    @property
    def exit_code(self) -> int:
        """The verdict's; of a command its own, as shells have it, and 4 if it did not come to an end of its own. What a
        comparison says has codes of its own."""
        if self.verdict is not None:
            return OUTCOMES[self.verdict].exit_code
        command = next((stage for stage in self.stages if stage.status in OWN_END), None)
        if command is None or self.error:
            return OUTCOMES["error"].exit_code
        return _SIGNALLED + Signals[command.signal] if command.signal else command.exit_code or 0

    def to_json(self) -> str:
        return json.dumps(self.model_dump(exclude_none=True), indent=1) + "\n"
