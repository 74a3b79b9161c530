"""The record of a stage in the journal: what the agent saw of it. What a status depends on, and what is only told."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, TypedDict, cast

from orchestrator.shared.schema import LATER, first_error

RunEndedBy = Literal["cancel", "limit"]
EndedBy = Literal["wall", "silence", "cancel", "limit"]


class File(TypedDict):
    """A regular file that the stage left; `path` is relative to the run's directory."""

    path: str
    bytes: int
    sha256: str


class TreeState(TypedDict):
    """The run's tree after the stage: files of the commit that `changed`, and `strays`, which are not the commit's and
    could not be removed; code that was written and is as it was (`rewritten`), and the same of data (`set_back`).
    """

    ok: bool
    changed: List[str]
    strays: List[str]
    rewritten: List[str]
    set_back: List[str]


class Left(TypedDict):
    """What a stage left in the tree, and was removed: how much, and the first of it; a folder ends with a slash."""

    count: int
    first: List[str]


class Built(TypedDict):
    """What a stage made in the tree for later ones; `tree` is git's hash of it."""

    count: int
    first: List[str]
    tree: str


class GpuUse(TypedDict):
    """Of a stage that wants the GPU for itself: why nobody could look, and who else used it."""

    unknown: Optional[str]
    disturbed: Optional[str]


class ForeignModule(TypedDict):
    """A module of a name that the tree holds, imported from elsewhere."""

    name: str
    file: str


class Elsewhere(TypedDict):
    """Code, or tests, from a place that is not the run's; or an `interpreter` (its `name`) that imported `file`."""

    what: Literal["code", "tests", "interpreter"]
    name: str
    file: str


class Executed(TypedDict):
    """What was launched on one device: how many kernels of Triton's, and their names."""

    launches: int
    kernels: List[str]


class LostExitCode(TypedDict):
    """A status other than 0 that a shell or a Python has dropped: of which command, in which line of which script.

    `how` is untested, member (of a pipeline that returned 0), ignored (`|| true`), negated (of `! command`, which bash
    drops), said (`|| echo failed`), kept (in a variable), substituted (in a substitution that forgets it), background
    (`wait` does not say it), cleanup (in the script's own EXIT trap), child (of a Python that did not look), call (in a
    Python's pool) or untold (by what has run it); `ours` tells a Python, and a program of the tree.
    """

    command: str
    program: str
    code: int
    line: int
    file: str
    how: str
    ours: bool


class Attempt(TypedDict):
    """The stage's tests, run again with the function or the mutant `name`: the `test` that noticed, or why none did."""

    name: str
    kind: Literal["function", "mutant"]
    outcome: Literal["killed", "survived", "not called", "no proof"]
    test: Optional[str]
    reason: str
    seconds: float


class Delivery(TypedDict):
    """An artifact that was asked for: whether it was there before the stage, and what keeps it from being one."""

    path: str
    existed_before: bool
    problem: Optional[str]


class Evidence(TypedDict):
    """What a status depends on."""

    started: bool
    blocked: Optional[str]  # why it did not start
    exit_code: Optional[int]
    signal: Optional[str]
    ended_by: Optional[EndedBy]
    truncated: Dict[str, int]  # bytes cut from the logs, by stream
    tree: TreeState
    stray_before: List[str]
    environment_ok: bool
    environment_changed: List[str]  # files that others, or the stage, have changed, if that is known
    journal_ok: bool
    gpu: Optional[GpuUse]
    guarded: Optional[bool]  # whether the guard was loaded; None for a stage that is no Python
    used_cuda: Optional[bool]  # whether a process of it computed on CUDA; None where nobody could look
    executed: Dict[str, Executed]  # by device: cuda:0, cpu:interpreted
    foreign_modules: List[ForeignModule]
    elsewhere: List[Elsewhere]
    escaped: List[str]  # closing lines of pytest in its output that belong to no session that was seen
    unseen_sessions: List[str]  # what was wrong with each pytest that ran behind another program
    lost_exit_codes: List[LostExitCode]
    unseen_exit_codes: Optional[str]  # why those of a shell could not be recorded
    idle_programs: List[str]  # files of the tree that are run for their tests, and ran none
    inert_programs: List[str]  # files of the tree that are run, and only define what they would do
    artifacts: List[Delivery]
    older: List[str]  # artifacts whose content was written before the stage began
    equal_to_committed: Dict[str, str]  # artifacts, each with a file of the commit that has the same content
    borrowed: Dict[str, str]  # artifacts whose content is from elsewhere, each with where from, as a clause
    overwritten: List[str]  # what earlier stages had left in artifacts/ and this one changed
    files: List[File]
    sabotage: List[Attempt]


class StageRecord(Evidence):
    """The record, with what is told beside the evidence."""

    seconds: float
    redacted: Dict[str, List[str]]  # names of the secret values that were replaced, by file
    leftovers: List[Dict[str, Any]]  # processes that outlived the stage's own, and were ended
    refused: List[Dict[str, str]]  # what it left that is no regular file
    left: Left
    built: Optional[Built]
    doubts: List[str]  # what was seen and can be judged by nobody but a person, as sentences


# Evidence that the journals of earlier versions do not have.
_SINCE = (
    *("environment_changed", "gpu", "used_cuda", "executed", "elsewhere", "escaped", "unseen_sessions"),
    *("lost_exit_codes", "unseen_exit_codes", "idle_programs", "inert_programs", "older", "equal_to_committed"),
    *("borrowed", "sabotage"),
)
LATER[TreeState] = frozenset({"rewritten", "set_back"})


def blank(stray_before: Sequence[str]) -> StageRecord:
    """The record of a stage that did not start."""
    return {
        "started": False,
        "blocked": None,
        "exit_code": None,
        "signal": None,
        "ended_by": None,
        "truncated": {},
        "tree": {"ok": True, "changed": [], "strays": [], "rewritten": [], "set_back": []},
        "stray_before": list(stray_before),
        "environment_ok": True,
        "environment_changed": [],
        "journal_ok": True,
        "gpu": None,
        "guarded": None,
        "used_cuda": None,
        "executed": {},
        "foreign_modules": [],
        "elsewhere": [],
        "escaped": [],
        "unseen_sessions": [],
        "lost_exit_codes": [],
        "unseen_exit_codes": None,
        "idle_programs": [],
        "inert_programs": [],
        "artifacts": [],
        "older": [],
        "equal_to_committed": {},
        "borrowed": {},
        "overwritten": [],
        "files": [],
        "sabotage": [],
        "seconds": 0.0,
        "redacted": {},
        "leftovers": [],
        "refused": [],
        "left": {"count": 0, "first": []},
        "built": None,
        "doubts": [],
    }


def by_stage(events: Iterable[Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """What the journal says of each stage that ended, with the files that went ahead of it in `stage_files` events."""
    ahead: Dict[str, List[Any]] = {}
    records: Dict[str, Dict[str, Any]] = {}
    for event in events:
        name, files = str(event.get("stage")), event.get("files")
        if event["event"] == "stage_started":  # what an agent that died had told of the stage is not of this attempt
            ahead.pop(name, None)
        elif event["event"] == "stage_files" and isinstance(files, list):
            ahead.setdefault(name, []).extend(files)
        elif event["event"] == "stage_ended":
            records[name] = {**event, "files": [*ahead.get(name, ()), *files] if isinstance(files, list) else files}
    return records


def read(told: object) -> Evidence:
    """What a journal tells of a stage as its evidence; ValueError names the first part that is not as it must be."""
    absent: Mapping[str, Any] = blank([])
    whole = {**{name: absent[name] for name in _SINCE}, **told} if isinstance(told, dict) else told
    wrong = first_error(whole, Evidence, "record")
    if wrong:
        raise ValueError(wrong)
    return cast(Evidence, whole)
