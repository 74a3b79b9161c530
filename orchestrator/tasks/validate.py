"""The whole road: a commit, a pod and a runbook become a result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import EnvironmentSpec, Runbook, RunbookFile, find_runbook
from orchestrator.config.variables import Variables
from orchestrator.errors import InputError, PodBusy, PodError
from orchestrator.git.repository import Contents, Repository, Revision
from orchestrator.pairing import choose
from orchestrator.pairing.table import table
from orchestrator.plan.limits import History, RunLimit, told
from orchestrator.plan.plan import (
    Capabilities,
    Plan,
    PlannedSubmodule,
    Tree,
    make_plan,
    secret_values,
    unmet,
    variables_of,
)
from orchestrator.pod.client import Agent, PodFacts
from orchestrator.pod.lock import Claim, held_by, queue
from orchestrator.pod.session import Door
from orchestrator.pod.sync import sync
from orchestrator.results import Result
from orchestrator.store import launches, machines
from orchestrator.store.history import history
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks import runs
from orchestrator.tasks.bootstrap import bootstrap
from orchestrator.tasks.launch import start
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
    variables: Mapping[str, Variables]
    limit: RunLimit | None
    history: History

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


def request(
    pod: Pod,
    repo_dir: Path,
    commit: str,
    runbook: str | None,
    artifacts: Path | None,
    limit: RunLimit | None = None,
) -> Request:
    """Resolve revision and runbook; InputError for what does not exist, or an environment that cannot be."""
    repo = Repository.open(repo_dir)
    revision = repo.resolve(commit)
    file = find_runbook(runbook or _default_runbook(pod), repo.root)
    choose.check(table(), file.runbook.environment, pod.environment)
    contents = repo.contents(revision)
    variables = variables_of(file.runbook, pod)
    places = artifacts or repo.root / "artifacts"
    earlier = history(pod.name, places, repo.root)
    asked = Request(pod, repo, revision, contents, repo.dirty(), file, places, variables, limit, earlier)
    preview(asked)  # what is wrong with the plan itself is said before a pod is contacted
    return asked


def needs_of(pod: Pod, folder: Path, runbook: str | None) -> EnvironmentSpec:
    """What the runbook needs that a validation from `folder` would use; outside a repository, the folder's or a
    packaged one. InputError for an environment that cannot be.
    """
    try:
        root = Repository.open(folder).root
    except InputError:
        root = folder
    spec = find_runbook(runbook or _default_runbook(pod), root).runbook.environment
    choose.check(table(), spec, pod.environment)
    return spec


def _default_runbook(pod: Pod) -> str:
    """The pod's own; else the whole matrix for a promised GPU, the smoke run without one."""
    return pod.runbook or (_GPU_RUNBOOK if pod.gpu else _CPU_RUNBOOK)


def preview(asked: Request) -> Plan:
    """The plan as the inventory's promises make it, without contacting the pod (--dry-run)."""
    spec = asked.runbook.environment
    named = frozenset((*spec.requires, *spec.optional, *spec.extra))
    have = Capabilities(sm=_ANY_SM if asked.pod.gpu else None, packages=named)
    return _plan(asked, {"kind": "undecided"}, have, {}, asked.pod.workdir, asked.limit)


def expected(plan: Plan) -> str:
    """What the plan's stages may take, as a sentence."""
    return told(plan.estimate, len(plan.stages), plan.limit) if plan.estimate else ""


def validate(asked: Request, door: Door, progress: Progress, claim: Claim) -> Result:
    """Run the request on the pod behind `door` and judge what really ran; `claim` is for a pod that is held."""
    warn(asked, progress)
    if claim.wait:
        queue(door)
    with door.open() as agent:
        facts = door.facts(agent)
        holder = facts.raw["holder"]
        if holder and not holder["dead"] and not (claim.wait or claim.steal):
            running = _same_run(asked, agent, facts, holder)
            if running is None or not _is_to_be_followed(running, holder, door):
                raise agent.busy(holder)  # only the launch takes hold of the pod, but there is much to do before it
            run = runs.directory(agent, running.run_id, runs.Choice(asked.repo.root, None, None, asked.artifacts))
        else:
            run = _start(asked, door, agent, facts, claim)
        return runs.bring_home(door, agent, run, progress)


def warn(asked: Request, progress: Progress) -> None:
    """Say what is not part of the run, and what should not be."""
    if asked.dirty:
        progress.warn(f"uncommitted changes are not part of this run: {listing(asked.dirty)}")
    if not asked.runbook_is_committed:
        progress.warn(f"the runbook {asked.runbook_path} is not as in {asked.revision.commit[:7]}")
    _warn_of_committed_secrets(asked, progress)


def _same_run(asked: Request, agent: Agent, facts: PodFacts, holder: Mapping[str, Any]) -> Plan | None:
    """The plan of the run that holds the pod, if it is what a run of this request would be."""
    try:
        running = runs.plan_on_pod(agent, str(holder.get("run_id")))
    except PodError:  # there is none, or none that can be read here
        return None
    have = Capabilities(sm=facts.sm, packages=frozenset(running.environment.get("packages", ())))
    own = _plan(asked, running.environment, have, running.facts, agent.workdir, asked.limit)
    return running if own.asks_the_same_as(running) else None


def _is_to_be_followed(running: Plan, holder: Mapping[str, Any], door: Door) -> bool:
    """Whether to follow a run that does what was asked for; PodBusy says how, where nobody can be asked."""
    same = f"{held_by(holder)}, which runs this very commit and runbook"
    if door.ask:
        return door.ask(f"pod {door.pod.name!r} is held by {same}: follow that run?")
    follow = f"nsa-pod follow --pod {door.pod.name} {running.run_id}"
    raise PodBusy(
        f"pod {door.pod.name!r} is held by {same}: follow it ({follow}), wait for its end to run it again (--wait), or "
        "cancel it and take the pod (--steal)",
        holder,
    )


def _start(asked: Request, door: Door, agent: Agent, facts: PodFacts, claim: Claim) -> RunDirectory:
    """Bring what the run needs, and launch it."""
    plan = _prepare(asked, agent, facts, door.progress)
    door.progress.say(expected(plan))
    secrets = secret_values(plan, asked.variables)
    run = start(door, agent, plan, secrets, asked.artifacts, asked.repo.root, claim)
    machines.remember(plan.pod, plan.run_id, plan.facts)
    door.progress.say(f"run {plan.run_id} started on pod {plan.pod}")
    return run


def bring_tree(asked: Request, agent: Agent, progress: Progress) -> None:
    """The commit's tree on the pod."""
    began = time.monotonic()
    moved = sync(agent, asked.repo, asked.revision, asked.contents)
    what = f"{moved.files} files, {size(moved.bytes)} moved" if moved else "already there"
    progress.say(f"commit {asked.revision.commit[:7]} on pod {asked.pod.name}: {what}, {_since(began)}")


def _prepare(asked: Request, agent: Agent, facts: PodFacts, progress: Progress) -> Plan:
    """Tree and environment on the pod, and the plan that uses them; what that took counts against the run's limit."""
    arrived = time.monotonic()
    bring_tree(asked, agent, progress)
    began = time.monotonic()
    environment = _environment(asked, agent, facts, progress)
    progress.say(f"environment {environment['kind']} {environment.get('key', '')}: {_since(began)}")
    have = Capabilities(sm=facts.sm, packages=frozenset(environment.get("packages", ())))
    summary = _machine(asked.pod.name, {**facts.summary(), "host_key": agent.transport.fingerprint}, progress)
    limit = asked.limit and asked.limit.after(time.monotonic() - arrived)
    newest = max([str(facts.raw.get("newest_run") or ""), *(launch.run_id for launch in launches.launches())])
    return _plan(asked, environment, have, summary, agent.workdir, limit, newest)


def _machine(pod: str, summary: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The pod's facts, with what of its identity is another than at the last run there."""
    changed = machines.changes(pod, summary)
    if changed:
        progress.warn(f"pod {pod!r} is not as at its last run, {machines.last_run(pod)}: {'; '.join(changed)}")
    return {**summary, "changed_since": {"run_id": machines.last_run(pod), "changes": changed} if changed else None}


def _environment(asked: Request, agent: Agent, facts: PodFacts, progress: Progress) -> Mapping[str, Any]:
    """The runbook's environment; where the required device is missing, all is blocked and no environment is built."""
    device = [condition for condition in asked.runbook.requires if not condition.startswith("has:")]
    if unmet(device, Capabilities(sm=facts.sm, packages=frozenset())):
        return {"kind": "system", "python": agent.python, "packages": {}}
    return bootstrap(agent, facts, asked.runbook.environment, progress)


def _plan(
    asked: Request,
    environment: Mapping[str, Any],
    have: Capabilities,
    facts: Mapping[str, Any],
    workdir: str,
    limit: RunLimit | None,
    newest: str | None = None,
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
        limit=limit,
        history=asked.history,
        after=newest,
    )


def _warn_of_committed_secrets(asked: Request, progress: Progress) -> None:
    """Whoever has the commit has a secret that it holds: the pod, and everybody with the repository."""
    found: dict[str, str] = {name: value for v in asked.variables.values() for name, value in v.secret.items()}
    for name, value in found.items():
        holders = asked.repo.files_with(asked.revision.commit, value)
        if holders:
            progress.warn(f"the commit holds the secret {name} in {listing(holders)}: {{from_env: NAME}} would not")


def _since(began: float) -> str:
    return seconds(time.monotonic() - began)
