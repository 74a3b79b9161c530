"""What the agent's commands answer, as JSON: written on the pod, held against these shapes on the laptop.

A pod may answer anything. There may be more in an answer than its shape says, never less.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, TypedDict, Union

from orchestrator.shared.plan import Environment, Layer

RunState = Literal["running", "ended", "lost"]
"""Of a run: lost if its agent died before its end."""
Amount = Union[int, str, None]
READY = "ready"
"""What a command that takes bulk says, with the byte of it from which on it is expected; its answer follows."""


class Gpu(TypedDict):
    """As nvidia-smi shows it; memory in MiB, `compute_cap` as "8.9". None is what the driver does not tell."""

    index: Amount
    name: Optional[str]
    driver: Optional[str]
    compute_cap: Optional[str]
    memory_used_mib: Amount
    memory_total_mib: Amount
    utilization_percent: Amount


class GpuUse(TypedDict):
    """`by` says who uses a GPU, as a clause; `unknown` why that cannot be told. Neither: it is idle."""

    by: Optional[str]
    unknown: Optional[str]


class Python(TypedDict):
    """A Python of the pod: where it was found, what it says of itself, whether it has C headers."""

    path: str
    version: str
    executable: str
    implementation: str
    soabi: Optional[str]
    headers: bool


class Disk(TypedDict):
    """Room at `path`; `free_inodes` is None where a file system makes them as it needs them."""

    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: Optional[int]
    writable: bool


class _Alive(TypedDict):
    dead: bool


class Holder(_Alive, total=False):
    """Who holds the pod, since when, for which run; `dead` if that process is gone, which frees the pod in a moment."""

    holder: str
    since: str
    run_id: str


class Facts(TypedDict):
    """`probe`: what the agent finds on the pod. `gpu_use` is of each of `gpus`, and beside them: plans have those."""

    hostname: str
    boot_id: Optional[str]
    os: str
    arch: str
    libc: List[str]
    cpus: Optional[int]
    cpu_model: Optional[str]
    memory_bytes: Optional[int]
    gpus: List[Gpu]
    gpu_use: List[GpuUse]
    gpu_complaint: Optional[str]
    driver_cuda: Optional[str]
    disk: Disk
    programs: Dict[str, Optional[str]]
    pythons: List[Python]
    built: List[str]
    holder: Optional[Holder]
    newest_run: Optional[str]


class _RunSummary(TypedDict):
    run_id: str
    state: RunState
    commit: Optional[str]
    runbook: Optional[str]
    bytes: int


class RunSummary(_RunSummary, total=False):
    """A run on the pod; `bytes` is its journal's size, None what its plan does not say; a `command`, or a
    comparison, gets no verdict.
    """

    who: Optional[str]
    command: bool


class Runs(TypedDict):
    """The newest runs, and how many `more` there are."""

    runs: List[RunSummary]
    more: int
    holder: Optional[Holder]


class Held(TypedDict):
    holder: Optional[Holder]


class Tidied(TypedDict):
    """The workdir before and after a launch removed what was more than `limit`; or the `problem` that it met."""

    limit: int
    before_bytes: int
    after_bytes: int
    problem: Optional[str]


class _Launched(TypedDict):
    dead: Optional[Dict[str, Any]]


class Launched(_Launched, total=False):
    """`dead` is what a holder that died with the pod had said of itself; `tidied` is there where a limit was given."""

    tidied: Tidied


class _RunStatus(TypedDict):
    state: RunState
    bytes: int


class RunStatus(_RunStatus, total=False):
    """How far a run is; of a lost one, why the pod's disk takes nothing more (`refusal`), if that is so."""

    refusal: str


class StageOutput(TypedDict):
    """What a stage wrote, in base64, from where the question began; `ended` if no more than that will come.

    `reason` is why a stage that has ended never began.
    """

    begun: bool
    ended: bool
    reason: Optional[str]
    stdout: str
    stderr: str


class Cancelling(TypedDict):
    """Whether there was an agent to be asked, and in how many seconds it has stopped if it works."""

    signalled: bool
    within: float


class Killed(TypedDict):
    """Whether the pod is free of the run."""

    ended: bool


class Trees(TypedDict):
    """The newest trees there, the last made first; `whole` if the one that was asked for is on the pod, unchanged."""

    trees: List[str]
    whole: bool


class TreeChange(TypedDict):
    """A question, for once: what makes one tree of another. `files` have git's mode, the blob and its size, in the
    order in which their contents follow."""

    files: Dict[str, List[str]]
    removed: List[str]


class AdoptedTree(TypedDict):
    """The tree that is there now, and where."""

    tree: str
    path: str


class BuildStarted(TypedDict):
    """`started` is false where somebody else builds the same."""

    job: str
    started: bool


class BuildStep(TypedDict):
    text: str
    phase: str
    t: float


class _BuildState(TypedDict):
    state: Literal["running", "built", "failed", "lost"]
    offset: int
    progress: List[BuildStep]


class BuildProgress(_BuildState, total=False):
    """`offset` is how much of the progress was told; `error` why it failed, `lacks` what it needs to be carried,
    `requires` what the build of a layer's `project` needs beside what it was given.
    """

    error: str
    lacks: Literal["uv"]
    project: str
    requires: List[str]


class EnvironmentReady(TypedDict):
    state: Literal["ready"]
    environment: Environment


class EnvironmentNot(TypedDict):
    state: Literal["absent", "changed"]
    reason: str


class EnvironmentSummary(TypedDict):
    """`age_s` is the time since its last use; of the packages, torch, triton and flash-attn are named."""

    key: str
    profile: Optional[str]
    packages: Dict[str, Any]
    bytes: int
    age_s: float
    in_use: bool


class Environments(TypedDict):
    environments: List[EnvironmentSummary]


EnvironmentFound = Union[EnvironmentReady, EnvironmentNot]


class BuiltLayer(Layer):
    """`requires` are the requirements of its projects, by path."""

    requires: Dict[str, List[str]]


class LayerReady(TypedDict):
    state: Literal["ready"]
    layer: BuiltLayer


LayerFound = Union[LayerReady, EnvironmentNot]


class RemovedItem(TypedDict):
    """A run, a tree, an environment ...; `bytes` count files that it shares with others too."""

    kind: str
    name: str
    bytes: int


class KeptItem(RemovedItem):
    """`in_use` says by whom, as a clause, or why it could not be removed; None: nobody uses it."""

    in_use: Optional[str]


class Pruned(TypedDict):
    """What `prune` removed, or would, and kept, of each the first 5000; what the workdir takes before and after, and
    what the disk has free now.
    """

    dry_run: bool
    before_bytes: int
    after_bytes: int
    free_bytes: int
    removed: List[RemovedItem]
    kept: List[KeptItem]
