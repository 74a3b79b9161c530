"""What is to be validated: all that can be found out, and be wrong, before a pod is contacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import quote

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import Limits, Runbook, RunbookFile, Stage, find_runbook, own_runbooks
from orchestrator.config.variables import EnvMap, Variables
from orchestrator.errors import InputError, Together
from orchestrator.files import require_room
from orchestrator.git.ancestry import ancestry_of
from orchestrator.git.repository import Contents, Repository, Revision, is_bare
from orchestrator.home import home
from orchestrator.pairing.choose import require_environment, require_possible
from orchestrator.pairing.table import table
from orchestrator.plan.absent import Tree
from orchestrator.plan.findings import findings
from orchestrator.plan.limits import run_limit
from orchestrator.plan.plan import ANY_SM, Capabilities, Mutation, Place, Work, make_plan, variables_of
from orchestrator.shared.plan import Plan, RunbookOrigin, RunLimit, is_not_the_commits
from orchestrator.shared.tree import without_files
from orchestrator.store.history import history
from orchestrator.tasks.bootstrap import overruled_pin
from orchestrator.tasks.mutants import find_mutants
from orchestrator.tasks.needs import Needs, find_needs
from orchestrator.text import listing
from orchestrator.ui import Progress

_GPU_RUNBOOK = "nsa-validate"
_CPU_RUNBOOK = "cpu-smoke"
COMMAND = "command"
"""What the only stage of a command is called."""
_COMMAND_LIMIT_S = 24 * 3600.0


@dataclass(frozen=True)
class Asked:
    """As a person asks: a pod (which may not be found), a revision of the repository, a runbook, where results are
    kept, limits; a `command` is run in the place of the runbook's stages.
    """

    pod: Callable[[], Pod]
    repo: Path
    commit: str
    runbook: str | None = None
    artifacts: Path | None = None
    max_time: str | None = None
    max_cost: float | None = None
    sabotage: bool = True
    command: Sequence[str] = ()


@dataclass(frozen=True)
class Request:
    """What is asked for, found in the repository."""

    pod: Pod
    repo: Repository
    revision: Revision
    contents: Contents
    dirty: list[str]
    file: RunbookFile
    needs: Needs
    artifacts: Path
    variables: Mapping[str, Variables]
    limit: RunLimit | None
    mutants: Mapping[str, Mutation]
    sabotage: bool
    command: bool = False
    partial: bool = False

    @property
    def runbook(self) -> Runbook:
        return self.file.runbook

    @cached_property
    def origin(self) -> RunbookOrigin:
        """Where the runbook came from: its path in the repository, its absolute path if it lies elsewhere."""
        root, path = self.repo.root.resolve(), self.file.path
        shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        committed = self.repo.blob_at(self.revision.commit, shown) == self.file.text.encode()
        origin = RunbookOrigin(
            name=self.runbook.name, source=self.file.source, path=shown, sha256=self.file.sha256, committed=committed
        )
        own = f"runbooks/{path.name}"
        held = self.repo.blob_at(self.revision.commit, own) if self.file.source == "packaged" else None
        if held not in (None, self.file.text.encode()):
            origin["instead_of"] = own
        if self.partial:
            origin["partial"] = True
        return origin

    @cached_property
    def tree(self) -> Tree:
        """The commit's, as a plan knows it."""
        return Tree(
            commit=self.revision.commit,
            commit_object=self.repo.commit_object(self.revision.commit),
            ancestry=ancestry_of(self.repo, self.revision.commit),
            tree=self.revision.tree,
            submodules=self.contents.submodules,
            dirty=bool(self.dirty),
            files=frozenset(self.contents.files),
        )

    @cached_property
    def work(self) -> Work:
        """What a plan of it runs."""
        earlier = history(self.pod, self.artifacts, self.repo.root)
        return Work(
            self.runbook,
            self.origin,
            self.pod,
            self.tree,
            self.limit,
            earlier,
            self.mutants,
            self.sabotage,
            self.command,
        )

    @cached_property
    def findings(self) -> list[str]:
        """What is wrong with the runbook on this commit: stages that will be blocked, or invalid."""
        return [] if self.command else findings(self.file, self.tree, self.mutants)

    def preview(self) -> Plan:
        """The plan as the inventory's promises make it, without contacting the pod (--dry-run)."""
        spec = self.needs.spec
        named = frozenset((*spec.requires, *spec.optional, *spec.extra))
        have = Capabilities(sm=ANY_SM if self.pod.gpu else None, packages=named)
        return make_plan(self.work, Place({"kind": "undecided"}, have, {}, self.pod.workdir))

    @property
    def envs(self) -> list[EnvMap]:
        """All variables that its stages may get, wherever they are written."""
        return [self.runbook.env, self.pod.env, *(stage.env for stage in self.runbook.stages)]

    def warn(self, progress: Progress) -> None:
        """Before a run, say what is wrong with the runbook, what is not part of the run, and what should not be.

        InputError where its results, or what is remembered of it, could not be kept.
        """
        require_room(self.artifacts / "runner", "results")
        require_room(home(), "what is remembered of pods and runs ($NSA_POD_HOME)")
        for finding in filter(None, [overruled_pin(self.pod, self.needs.spec), *self.findings]):
            progress.warn(finding)
        if self.dirty:
            progress.warn(f"uncommitted changes are not part of this run: {listing(self.dirty)}")
        absent = without_files(self.contents.submodules)
        if absent:
            progress.warn(
                f"the submodule {listing(absent)} is not in this clone, and not part of this run: "
                "`git submodule update --init --recursive`, with that commit checked out, brings it"
            )
        if is_not_the_commits(self.origin):
            progress.warn(f"the runbook {self.origin['path']} is not as in {self.revision.commit[:7]}")
        for name, value in {item for v in self.variables.values() for item in v.secret.items()}:
            holders = self.repo.files_with(self.revision.commit, value)
            if holders:  # whoever has the commit has the secret: the pod, and everybody with the repository
                progress.warn(f"the commit holds the secret {name} in {listing(holders)}: {{from_env: NAME}} would not")


def find(asked: Asked, narrow: Callable[[Runbook], Runbook] = lambda runbook: runbook) -> Request:
    """The request, for what `narrow` leaves of the runbook; InputErrors for all that does not exist, or cannot be."""
    steps = Together()
    pod = steps.attempt(asked.pod)
    limit = steps.attempt(lambda: run_limit(pod, asked.max_time, asked.max_cost)) if pod else None
    repo = steps.attempt(lambda: Repository.open(asked.repo))
    revision = steps.attempt(lambda: repo.revision(asked.commit)) if repo else None
    contents = steps.attempt(lambda: repo.contents(revision)) if repo and revision else None
    root = repo.root if repo else asked.repo
    file = whole = None
    if repo or asked.runbook:
        file = whole = steps.attempt(lambda: find_runbook(asked.runbook or default_runbook(pod, root), root))
    if file and asked.command:
        file = replace(file, document=replace(file.document, value=_only(asked.command, file.runbook)))
    elif file:
        file = replace(file, document=replace(file.document, value=narrow(file.runbook)))
    needs = steps.attempt(lambda: _needs(file, repo, revision)) if file and repo and revision else None
    if needs and pod and file:
        steps.attempt(lambda: _hold_environment(needs, pod, file))
    variables = steps.attempt(lambda: variables_of(file.runbook, pod)) if file and pod else None
    mutants: Mapping[str, Mutation] = {}
    sabotage = asked.sabotage and not asked.command
    if repo and revision and file and sabotage:
        mutants = steps.attempt(lambda: find_mutants(repo, revision.commit, file)) or {}
    steps.finish()
    # Each that failed has said so.
    assert pod and repo and revision and contents and file and needs and variables is not None
    request = Request(
        pod=pod,
        repo=repo,
        revision=revision,
        contents=contents,
        dirty=repo.dirty(),
        file=file,
        needs=needs,
        artifacts=asked.artifacts or repo.root / "artifacts",
        variables=variables,
        limit=limit,
        mutants=mutants,
        sabotage=sabotage,
        command=bool(asked.command),
        partial=whole is not None and len(file.runbook.stages) < len(whole.runbook.stages),
    )
    request.preview()  # what is wrong with the plan itself is said before a pod is contacted
    return request


def _only(command: Sequence[str], runbook: Runbook) -> Runbook:
    """The runbook's environment and variables, with the command as its only stage, which may take its time."""
    limits = Limits(wall=_COMMAND_LIMIT_S, silence=_COMMAND_LIMIT_S)
    stage = Stage(name=COMMAND, run=list(command), limits=limits)
    return runbook.model_copy(update={"requires": [], "stages": [stage]})


def needs_of(pod: Pod, folder: Path, runbook: str | None) -> Needs:
    """What the runbook needs that a validation of HEAD from `folder` would use; a packaged one, where there is none.
    InputError for an environment that cannot be.
    """
    try:
        repo = Repository.open(folder)
    except InputError:
        read, root, commit = (lambda path: _content(folder / path)), folder, ""
    else:
        read, root, commit = (lambda path: repo.blob_at("HEAD", path)), repo.root, "HEAD"
    name = runbook or pod.runbook or _own_default(pod, root) or _usual(pod)
    file = find_runbook(name, root)
    with _said_of(file):
        needs = find_needs(file.runbook, read, commit)
    _hold_environment(needs, pod, file)
    return needs


def _hold_environment(needs: Needs, pod: Pod, file: RunbookFile) -> None:
    """The pod's environment is one that there is, and can have what is needed."""
    try:
        if pod.environment is not None:
            require_environment(table(), pod.environment)
    except InputError as e:
        raise InputError(f"{pod.inventory}: key 'pods.{pod.name}.environment': {e}") from e
    with _said_of(file):
        require_possible(table(), needs.spec, pod.environment)


def _needs(file: RunbookFile, repo: Repository, revision: Revision) -> Needs:
    with _said_of(file):
        return find_needs(file.runbook, lambda path: repo.blob_at(revision.commit, path), revision.commit)


@contextmanager
def _said_of(file: RunbookFile) -> Iterator[None]:
    """What is wrong with a key of the runbook is said with its file and line."""
    try:
        yield
    except InputError as e:
        raise InputError(f"{_line_of(file, str(e).partition(':')[0])}: {e}") from e


def _line_of(file: RunbookFile, key: str) -> str:
    """The runbook, with the line of this key if it has it."""
    line = file.document.lines.get((key,))
    return file.document.source if line is None else f"{file.document.source}:{line}"


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def default_runbook(pod: Pod | None, root: Path) -> str:
    """The pod's own; else one of the repository's. InputError where there is none, or none that is meant."""
    found = (pod and pod.runbook) or _own_default(pod, root)
    if found:
        return found
    own = own_runbooks(root)
    if own:
        raise InputError(f"{root} has several runbooks: expected --runbook with one of {', '.join(own)}")
    if is_bare(root):
        raise InputError(f"{root} is a bare repository, without files: expected a clone of it, or --runbook FILE")
    raise InputError(f"{root} has no runbook: `nsa-pod init {quote(str(root))}` writes one that fits it")


def _own_default(pod: Pod | None, root: Path) -> str | None:
    """The whole matrix for a promised GPU, the smoke run without one, where the repository has them; else its only
    runbook.
    """
    own = own_runbooks(root)
    if pod and _usual(pod) in own:
        return _usual(pod)
    return own[0] if len(own) == 1 else None


def _usual(pod: Pod) -> str:
    return _GPU_RUNBOOK if pod.gpu else _CPU_RUNBOOK
