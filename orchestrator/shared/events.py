"""What the agent writes into the journal, a kind of event each; the journal adds number, time and hash chain."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Mapping, Optional, TypedDict, Union

from orchestrator.shared.stage_record import Attempt, File, StageRecord

# As read: what an agent wrote, and what any other program may have.
Event = Mapping[str, Any]


class Beginning(TypedDict):
    """The run, the agent and the machine, at a run's beginning and where it is gone on with."""

    format: int
    run_id: str
    plan_sha256: str
    agent: Optional[str]
    pid: int
    boot_id: Optional[str]
    host: str
    agent_python: str
    gpus: List[Dict[str, Any]]


class RunStarted(Beginning):
    event: Literal["run_started"]


class RunResumed(Beginning):
    """`by` asked for it; the stages `finished` keep their records."""

    event: Literal["run_resumed"]
    by: str
    finished: List[str]


class TreeChecked(TypedDict):
    event: Literal["tree_checked"]
    ok: bool
    tree: str
    files: int


class EnvironmentChecked(TypedDict):
    """Of the plan's own commit ("") or of one `beside` it."""

    event: Literal["environment_checked"]
    fingerprint: str
    ok: bool
    python: str
    beside: str


class LeftoversEnded(TypedDict):
    """Processes of runs that died, and whether they could all be told: those ended before this run, and those left."""

    event: Literal["leftovers_ended"]
    ended: List[Dict[str, Any]]
    left: List[Dict[str, Any]]
    known_by_mark: bool


class StageStarted(TypedDict):
    """`inherited` names the variables that come from the agent's own environment."""

    event: Literal["stage_started"]
    stage: str
    argv: List[str]
    env: Dict[str, str]
    inherited: List[str]


class Tested(TypedDict):
    """How far a pytest session is."""

    done: int
    collected: int


class Output(TypedDict):
    """The stage has written: `bytes` so far to the `stream`, its last line; `tests` of one that runs pytest."""

    event: Literal["output"]
    stage: str
    stream: str
    elapsed: float
    bytes: int
    last_line: str
    tests: Optional[Tested]


class TestFailed(TypedDict):
    """A test of the stage has failed, or a file could not be collected: of the first ones, as they come."""

    event: Literal["test_failed"]
    stage: str
    id: str
    reason: str


class SabotageStarted(TypedDict):
    """The stage passed, and its tests run again with `name` spoiled: the `number`th of `of`."""

    event: Literal["sabotage_started"]
    stage: str
    name: str
    number: int
    of: int


class SabotageEnded(Attempt):
    event: Literal["sabotage_ended"]
    stage: str


class StageFiles(TypedDict):
    """Files of the stage that go ahead of its record: a line has an end, however many there are."""

    event: Literal["stage_files"]
    stage: str
    files: List[File]


class StageEnded(StageRecord):
    """The status is what the agent judged, to know which stages may run; the laptop judges again."""

    event: Literal["stage_ended"]
    stage: str
    status: str
    reason: str


class Cancelled(TypedDict):
    event: Literal["cancelled"]
    by: str
    stolen: bool


class LimitReached(TypedDict):
    event: Literal["limit_reached"]
    limit: str
    seconds: float


class AgentError(TypedDict):
    event: Literal["agent_error"]
    error: str
    traceback: str


class RunEnded(TypedDict):
    event: Literal["run_ended"]
    reason: str


Written = Union[
    RunStarted,
    RunResumed,
    TreeChecked,
    EnvironmentChecked,
    LeftoversEnded,
    StageStarted,
    Output,
    TestFailed,
    SabotageStarted,
    SabotageEnded,
    StageFiles,
    StageEnded,
    Cancelled,
    LimitReached,
    AgentError,
    RunEnded,
]
