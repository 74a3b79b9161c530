"""plan.json: all that a run does, as the laptop writes it and the agent reads it, under the hash in its run id."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, TypedDict, cast

from orchestrator.shared import strict_json
from orchestrator.shared.failure import Failure
from orchestrator.shared.schema import LATER, first_error

FORMAT = 2
"""Of the plans and journals that this version writes. Format 1 had no number in its journals."""
FORMATS = (1, 2)

HASH_DIGITS = 8
STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{7}-[0-9a-f]{8}")
_OBJECT_NAME = re.compile(r"[0-9a-f]{40}")


class Limits(TypedDict):
    """Seconds of wall time, without output, from SIGTERM to SIGKILL; bytes that are kept of each output stream."""

    wall: float
    silence: float
    grace: float
    log_bytes: int


class Mutant(TypedDict):
    """A patch of the tree as it was applied: what its `files` hold with it (deflated, in base64; None: gone), or what
    is `wrong` with it; the ids of the tests that are run with it match `tests`.
    """

    patch: str
    tests: str
    files: Dict[str, Optional[str]]
    wrong: Optional[str]


class _Stage(TypedDict):
    """One process (group): `argv` still has its placeholders, `env` is complete but for the allow-list and for
    `secrets`, variables whose values the launch hands over beside the plan. `expect` is for `verdict` to read;
    `builds` are patterns of files in the tree that the stages after it get; `cwd` is relative to the tree, `paths` too.
    """

    name: str
    argv: List[str]
    env: Dict[str, str]
    secrets: List[str]
    paths: List[str]
    needs: List[str]
    required: bool
    cuda: bool
    pytest: bool
    exclusive: Optional[Literal["gpu"]]
    limits: Limits
    expect: Dict[str, Any]
    builds: List[str]
    cwd: str
    blocked: Optional[str]


class Trial(TypedDict):
    """A stage that is one of many runs of the bench `of`: in which block of a comparison, and for which side. Nothing
    that it makes is for later stages."""

    of: str
    block: int
    side: Literal["a", "b", "control"]


class Stage(_Stage, total=False):
    """`mutants` are there where `expect` asks for them; `beside` names the commit beside the plan's own that the stage
    is of, `folder` where below artifacts/ its own are. Of each group in `needs_any` one stage has to have passed.
    """

    mutants: List[Mutant]
    beside: str
    folder: str
    trial: Trial
    needs_any: List[List[str]]


class LeftOut(TypedDict):
    """A stage of the runbook that does not apply to this pod."""

    name: str
    reason: str
    cuda: bool


class Submodule(TypedDict):
    """A submodule of the tree: where, its commit, and the hash of the tree below it."""

    path: str
    commit: str
    tree: str


class Ancestry(TypedDict):
    """What `git describe` needs of what was before the commit: `objects` (commits and tags, as git stores them, in
    base64 of zlib), and the `tags` by name, each with its object."""

    objects: str
    tags: Dict[str, str]


class CommitParts(TypedDict):
    """A commit as a pod is told of it: `submodules` and `ancestry` are what makes its .git."""

    commit: str
    commit_object: str
    ancestry: Ancestry
    tree: str
    submodules: List[Submodule]


class _Origin(TypedDict):
    name: str
    source: Literal["repository", "packaged", "file"]
    path: str
    sha256: str
    committed: bool


class RunbookOrigin(_Origin, total=False):
    """Where the runbook came from; `committed` says whether the commit holds the same bytes at that path, `instead_of`
    which file of the commit a packaged one of its name has replaced, `partial` that not all of its stages were asked
    for.
    """

    instead_of: str
    partial: bool


class Layer(TypedDict):
    """The repository's own installation over an environment: a thin one below `root`, built from `tree`, with what it
    brings as `packages`.
    """

    key: str
    root: str
    python: str
    tree: str
    packages: Dict[str, str]


class Environment(TypedDict, total=False):
    """Where the stages' packages are: a managed environment below `root`, or the pod's own Python as it is, and over it
    the `layer`, if the runbook has one.

    Undecided until a pod was asked, which took `setup_seconds`, a build included. `torch_cuda` is torch's CUDA runtime;
    `lock` is the whole lock's text.
    """

    kind: Literal["managed", "system", "undecided"]
    python: str
    python_version: str
    root: str
    key: str
    profile: Optional[str]
    packages: Dict[str, str]
    torch_cuda: Optional[str]
    built: Dict[str, Any]
    notes: List[str]
    lock: str
    lock_sha256: str
    setup_seconds: float
    layer: Layer


class Beside(CommitParts):
    """Another commit than the plan's, of which stages are, with the environment that they have."""

    environment: Environment


class Comparison(TypedDict):
    """What a run compares: two commits, as the repository knows them; the one whose bench files measure both (None:
    each its own); and the least part by which a row counts as different.
    """

    a: str
    b: str
    harness: Optional[str]
    threshold: float


class Changed(TypedDict):
    """What of a pod's identity is another than at the run `run_id`, as clauses."""

    run_id: str
    changes: List[str]


class Machine(TypedDict, total=False):
    """Which machine the pod is, with its GPUs as nvidia-smi shows them.

    `driver_cuda` is the newest CUDA that the driver supports: neither an installed toolkit nor torch's runtime.
    """

    hostname: Optional[str]
    boot_id: Optional[str]
    arch: Optional[str]
    cpu_model: Optional[str]
    cpus: Optional[int]
    memory_bytes: Optional[int]
    gpus: List[Dict[str, Any]]
    driver: Optional[str]
    driver_cuda: Optional[str]
    host_key: Optional[str]
    changed_since: Optional[Changed]


class Promises(TypedDict):
    """What the pod has, as its facts say."""

    cuda: bool


class RunLimit(TypedDict):
    """What a whole run may take: `seconds`, of which `spent` had passed at its launch; `given` as it was asked for."""

    given: str
    seconds: float
    spent: float


class _Estimate(TypedDict):
    seconds: float
    cost: Optional[float]
    runs: int
    by_limit: List[str]


class Estimate(_Estimate, total=False):
    """What the stages may take, in seconds: by what they took in earlier `runs`, each of `stages`; those of `by_limit`,
    which did not run there yet, by their wall limits."""

    stages: Dict[str, float]


class _Plan(CommitParts):
    format: int
    run_id: str
    created: str
    nonce: str
    pod: str
    who: str
    dirty: bool
    runbook: RunbookOrigin
    requires: List[str]
    environment: Environment
    promises: Promises
    facts: Machine
    cost_per_hour: Optional[float]
    workdir: str
    left_out: List[LeftOut]
    stages: List[Stage]
    limit: Optional[RunLimit]
    estimate: Optional[Estimate]


def is_not_the_commits(runbook: RunbookOrigin) -> bool:
    """Whether the commit is judged by a runbook that it does not hold; a packaged one stands in where it has none."""
    if runbook["source"] == "packaged":
        return "instead_of" in runbook
    return not runbook["committed"]


class Plan(_Plan, total=False):
    """The run id ends with the hash of all the rest. Where `sabotage` is false, no `kills` and `mutants` are tried;
    a `command` is one that somebody wanted run, and gets no verdict, nor does a `comparison`, whose stages are also of
    commits `beside`."""

    sabotage: bool
    command: bool
    comparison: Comparison
    beside: Dict[str, Beside]


LATER[Stage] = frozenset({"builds", "cwd"})
LATER[Plan] = frozenset({"ancestry"})


def canonical(plan: Mapping[str, Any]) -> bytes:
    """The bytes that a plan's hash is of: all but the run id, keys sorted."""
    content = {key: value for key, value in plan.items() if key != "run_id"}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def with_sabotage(plan: Plan) -> bool:
    """Whether the tests of stages that ask for it are run again with wrong code."""
    return plan.get("sabotage", True)


def is_command(plan: Mapping[str, Any]) -> bool:
    """Whether it runs what somebody typed: recorded as any other run, and judged by nobody."""
    return bool(plan.get("command", False))


def has_no_verdict(plan: Mapping[str, Any]) -> bool:
    """Whether nobody judges it as a whole: a command, or a comparison."""
    return is_command(plan) or "comparison" in plan


def artifacts_of(stage: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The artifacts that a stage owes."""
    return stage["expect"].get("artifacts") or ()


def commits_of(plan: Plan) -> Dict[str, Plan]:
    """The plan as it is for the stages of each of its commits, by their names: its own is ""."""
    beside = plan.get("beside", {})
    return {"": plan, **{name: cast(Plan, {**plan, **parts}) for name, parts in beside.items()}}


def plan_hash(plan: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the plan without its run id; the run id ends with the first eight digits."""
    return hashlib.sha256(canonical(plan)).hexdigest()


def read(text: str, source: str) -> Plan:
    """The plan in `text`; Failure, with `source` as its name, if it is not the one that its run id was made from."""
    try:
        found = strict_json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Failure(f"{source} is not JSON: {e}") from e
    if not isinstance(found, dict) or found.get("format") not in FORMATS:
        known = " or ".join(map(str, FORMATS))
        raise Failure(f"{source} is not a plan of format {known}: it is that of another version of nsa-pod")
    run_id = str(found.get("run_id"))
    if not run_id.endswith("-" + plan_hash(found)[:HASH_DIGITS]):
        raise Failure(f"{source} was changed: its content is not what run {run_id} was launched with")
    return _checked(found, source)


def load(run_dir: Path) -> Plan:
    """The plan of the run in `run_dir`; Failure if it is not whole, or that of another run."""
    path = run_dir / "plan.json"
    try:
        plan = read(path.read_text(encoding="utf-8", errors="replace"), str(path))
    except FileNotFoundError as e:
        raise Failure(f"{path} does not exist") from e
    if plan["run_id"] != run_dir.name:
        raise Failure(f"{path} is the plan of run {plan['run_id']}, expected that of {run_dir.name}")
    return plan


def _checked(found: Dict[str, Any], source: str) -> Plan:
    """What becomes paths and file names on either side must be able to: a plan may come from anywhere."""
    wrong = first_error(found, Plan, "it")
    if wrong:
        raise Failure(f"{source} is not a plan: {wrong} is not as it should be")
    if not RUN_ID.fullmatch(found["run_id"]):
        raise Failure(f"{source} is not a plan: its run id is {found['run_id']!r}")
    commits = commits_of(cast(Plan, found))
    for name in (part for plan in commits.values() for part in (plan["commit"], plan["tree"])):
        if not _OBJECT_NAME.fullmatch(name):
            raise Failure(f"{source} is not a plan: {name!r} is not the name of a git object")
    stages = found["stages"]
    folders = [*filter(None, commits), *(stage["folder"] for stage in stages if "folder" in stage)]
    for name in (*(stage["name"] for stage in stages), *folders):
        if not STAGE_NAME.fullmatch(name):
            raise Failure(f"{source} has a stage called {name!r}: expected letters, digits, '_', '.', '-'")
    if not all(stage.get("beside", "") in commits for stage in stages):
        raise Failure(f"{source} is not a plan: it has stages of a commit that it does not hold")
    return cast(Plan, found)
