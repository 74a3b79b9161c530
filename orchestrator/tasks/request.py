"""What is to be validated: all that can be found out, and be wrong, before a pod is contacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import EnvironmentSpec, Runbook, RunbookFile, find_runbook
from orchestrator.config.variables import Variables
from orchestrator.errors import InputError
from orchestrator.git.ancestry import ancestry_of
from orchestrator.git.repository import Contents, Repository, Revision
from orchestrator.pairing.choose import require_possible
from orchestrator.pairing.table import table
from orchestrator.plan.plan import Capabilities, Place, Tree, Work, make_plan, variables_of
from orchestrator.shared.plan import Plan, RunbookOrigin, RunLimit, is_not_the_commits
from orchestrator.store.history import history
from orchestrator.tasks.mutants import find_mutants
from orchestrator.text import listing
from orchestrator.ui import Progress

_GPU_RUNBOOK = "nsa-validate"
_CPU_RUNBOOK = "cpu-smoke"
# A preview does not know the promised GPU's generation, and assumes that it meets every `sm>=`.
_ANY_SM = 999


@dataclass(frozen=True)
class Asked:
    """As a person asks: a pod, a revision of the repository, a runbook, where results are kept, a limit."""

    pod: Pod
    repo: Path
    commit: str
    runbook: str | None = None
    artifacts: Path | None = None
    limit: RunLimit | None = None
    sabotage: bool = True


@dataclass(frozen=True)
class Request:
    """What is asked for, found in the repository."""

    pod: Pod
    repo: Repository
    revision: Revision
    contents: Contents
    dirty: list[str]
    file: RunbookFile
    artifacts: Path
    variables: Mapping[str, Variables]
    limit: RunLimit | None
    sabotage: bool

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
        return origin

    @cached_property
    def work(self) -> Work:
        """What a plan of it runs."""
        tree = Tree(
            commit=self.revision.commit,
            commit_object=self.repo.commit_object(self.revision.commit),
            ancestry=ancestry_of(self.repo, self.revision.commit),
            tree=self.revision.tree,
            submodules=self.contents.submodules,
            dirty=bool(self.dirty),
            files=frozenset(self.contents.files),
        )
        earlier = history(self.pod.name, self.artifacts, self.repo.root)
        mutants = find_mutants(self.repo, self.revision.commit, self.file) if self.sabotage else {}
        return Work(self.runbook, self.origin, self.pod, tree, self.limit, earlier, mutants, self.sabotage)

    def preview(self) -> Plan:
        """The plan as the inventory's promises make it, without contacting the pod (--dry-run)."""
        spec = self.runbook.environment
        named = frozenset((*spec.requires, *spec.optional, *spec.extra))
        have = Capabilities(sm=_ANY_SM if self.pod.gpu else None, packages=named)
        return make_plan(self.work, Place({"kind": "undecided"}, have, {}, self.pod.workdir))

    def warn(self, progress: Progress) -> None:
        """Say what is not part of the run, and what should not be."""
        if self.dirty:
            progress.warn(f"uncommitted changes are not part of this run: {listing(self.dirty)}")
        if is_not_the_commits(self.origin):
            progress.warn(f"the runbook {self.origin['path']} is not as in {self.revision.commit[:7]}")
        for name, value in {item for v in self.variables.values() for item in v.secret.items()}:
            holders = self.repo.files_with(self.revision.commit, value)
            if holders:  # whoever has the commit has the secret: the pod, and everybody with the repository
                progress.warn(f"the commit holds the secret {name} in {listing(holders)}: {{from_env: NAME}} would not")


def find(asked: Asked) -> Request:
    """The request; InputError for what does not exist, or an environment that cannot be."""
    pod = asked.pod
    repo = Repository.open(asked.repo)
    revision = repo.revision(asked.commit)
    file = find_runbook(asked.runbook or _default_runbook(pod), repo.root)
    require_possible(table(), file.runbook.environment, pod.environment)
    request = Request(
        pod=pod,
        repo=repo,
        revision=revision,
        contents=repo.contents(revision),
        dirty=repo.dirty(),
        file=file,
        artifacts=asked.artifacts or repo.root / "artifacts",
        variables=variables_of(file.runbook, pod),
        limit=asked.limit,
        sabotage=asked.sabotage,
    )
    request.preview()  # what is wrong with the plan itself is said before a pod is contacted
    return request


def needs_of(pod: Pod, folder: Path, runbook: str | None) -> EnvironmentSpec:
    """What the runbook needs that a validation from `folder` would use; outside a repository, the folder's or a
    packaged one. InputError for an environment that cannot be.
    """
    try:
        root = Repository.open(folder).root
    except InputError:
        root = folder
    spec = find_runbook(runbook or _default_runbook(pod), root).runbook.environment
    require_possible(table(), spec, pod.environment)
    return spec


def _default_runbook(pod: Pod) -> str:
    """The pod's own; else the whole matrix for a promised GPU, the smoke run without one."""
    return pod.runbook or (_GPU_RUNBOOK if pod.gpu else _CPU_RUNBOOK)
