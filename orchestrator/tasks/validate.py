"""The whole road: a commit, a pod and a runbook become a result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import pairing
from orchestrator.errors import InputError
from orchestrator.inventory import Pod
from orchestrator.pairing_table import table
from orchestrator.plan import Capabilities, Plan, PlannedSubmodule, Tree, make_plan, unmet
from orchestrator.repo import Contents, Repository, Revision
from orchestrator.results import Result
from orchestrator.runbook import Runbook, RunbookFile, find_runbook
from orchestrator.tasks.bootstrap import bootstrap
from orchestrator.tasks.follow import Follower
from orchestrator.tasks.probe import Agent, PodFacts
from orchestrator.tasks.reach import Door
from orchestrator.tasks.start import start
from orchestrator.tasks.sync import sync
from orchestrator.text import listing, seconds, size
from orchestrator.ui import Progress

_GPU_RUNBOOK = "nsa-validate"
_CPU_RUNBOOK = "cpu-smoke"
# A preview does not know the promised GPU's generation, and assumes that it meets every `sm>=`.
_ANY_SM = 999


@dataclass(frozen=True)
class Request:
    """What is to be validated: all that can be checked before a pod is contacted has been."""

    pod: Pod
    repo: Repository
    revision: Revision
    contents: Contents
    dirty: list[str]
    file: RunbookFile
    artifacts: Path

    @property
    def runbook(self) -> Runbook:
        return self.file.runbook

    @property
    def tree(self) -> Tree:
        """What the plan needs to know of the commit."""
        submodules = [PlannedSubmodule(path=s.path, commit=s.commit, tree=s.tree) for s in self.contents.submodules]
        return Tree(
            commit=self.revision.commit,
            commit_object=self.repo.commit_object(self.revision.commit),
            tree=self.revision.tree,
            submodules=submodules,
            dirty=bool(self.dirty),
            files=frozenset(self.contents.files),
        )

    @property
    def runbook_path(self) -> str:
        """The runbook's path in the repository; its absolute path if it lies elsewhere."""
        root = self.repo.root.resolve()
        path = self.file.path
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)

    @property
    def runbook_is_committed(self) -> bool:
        """Whether the commit holds the runbook's very bytes at its path."""
        return self.repo.blob_at(self.revision.commit, self.runbook_path) == self.file.path.read_bytes()


def request(pod: Pod, repo_dir: Path, commit: str, runbook: str | None, artifacts: Path | None) -> Request:
    """Resolve revision and runbook; InputError for what does not exist, or an environment that cannot be."""
    repo = Repository.open(repo_dir)
    revision = repo.resolve(commit)
    file = find_runbook(runbook or _default_runbook(pod), repo.root)
    pairing.check(table(), file.runbook.environment, pod.environment)
    contents = repo.contents(revision)
    return Request(pod, repo, revision, contents, repo.dirty(), file, artifacts or repo.root / "artifacts")


def runbook_for(pod: Pod, folder: Path, runbook: str | None) -> Runbook:
    """The runbook that a validation from `folder` would use; outside a repository, the folder's or a packaged one."""
    try:
        root = Repository.open(folder).root
    except InputError:
        root = folder
    return find_runbook(runbook or _default_runbook(pod), root).runbook


def _default_runbook(pod: Pod) -> str:
    """The pod's own; else the whole matrix for a promised GPU, the smoke run without one."""
    return pod.runbook or (_GPU_RUNBOOK if pod.gpu else _CPU_RUNBOOK)


def preview(asked: Request) -> Plan:
    """The plan as the inventory's promises make it, without contacting the pod (--dry-run)."""
    spec = asked.runbook.environment
    named = frozenset((*spec.requires, *spec.optional, *spec.extra))
    have = Capabilities(sm=_ANY_SM if asked.pod.gpu else None, packages=named)
    return _plan(asked, {"kind": "undecided"}, have, {}, asked.pod.workdir)


def validate(asked: Request, door: Door, progress: Progress) -> Result:
    """Run the request on the pod behind `door` and judge what really ran."""
    if asked.dirty:
        progress.warn(f"uncommitted changes are not part of this run: {listing(asked.dirty)}")
    if not asked.runbook_is_committed:
        progress.warn(f"the runbook {asked.runbook_path} is not as in {asked.revision.commit[:7]}")
    with door.open() as agent:
        facts = door.facts(agent)
        if facts.raw["holder"]:  # only the launch takes hold of the pod, but there is much to do before it
            raise agent.busy(facts.raw["holder"])
        plan = _prepare(asked, agent, facts, progress)
        progress.expect_stages([stage.name for stage in plan.stages])
        run = start(agent, plan, asked.artifacts, asked.repo.root)
        progress.say(f"run {plan.run_id} started on pod {plan.pod}")
        follower = Follower(door.open, run, progress)
        return run.settle(follower.follow(agent), follower.refused)


def _prepare(asked: Request, agent: Agent, facts: PodFacts, progress: Progress) -> Plan:
    """Tree and environment on the pod, and the plan that uses them."""
    began = time.monotonic()
    moved = sync(agent, asked.repo, asked.revision, asked.contents)
    what = f"{moved.files} files, {size(moved.bytes)} moved" if moved else "already there"
    progress.say(f"commit {asked.revision.commit[:7]} on pod {asked.pod.name}: {what}, {_since(began)}")
    began = time.monotonic()
    environment = _environment(asked, agent, facts, progress)
    progress.say(f"environment {environment['kind']} {environment.get('key', '')}: {_since(began)}")
    have = Capabilities(sm=facts.sm, packages=frozenset(environment.get("packages", ())))
    summary = {**facts.summary(), "host_key": agent.transport.fingerprint}
    return _plan(asked, environment, have, summary, agent.workdir)


def _environment(asked: Request, agent: Agent, facts: PodFacts, progress: Progress) -> Mapping[str, Any]:
    """The runbook's environment; where the required device is missing, all is blocked and no environment is built."""
    device = [condition for condition in asked.runbook.requires if not condition.startswith("has:")]
    if unmet(device, Capabilities(sm=facts.sm, packages=frozenset())):
        return {"kind": "system", "python": agent.python, "packages": {}}
    return bootstrap(agent, facts, asked.runbook.environment, progress)


def _plan(
    asked: Request, environment: Mapping[str, Any], have: Capabilities, facts: Mapping[str, Any], workdir: str
) -> Plan:
    return make_plan(
        asked.file,
        asked.pod,
        asked.tree,
        environment,
        have,
        facts=facts,
        workdir=workdir,
        path=asked.runbook_path,
        committed=asked.runbook_is_committed,
    )


def _since(began: float) -> str:
    return seconds(time.monotonic() - began)
