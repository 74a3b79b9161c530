"""Go on with a run whose agent died: the same tree, runbook, environment and GPUs, or not at all."""

from __future__ import annotations

import shlex

from orchestrator.errors import PodBusy, PodError
from orchestrator.home import who
from orchestrator.launchers import launcher_of
from orchestrator.launchers.base import Secrets
from orchestrator.launchers.claim import Claim, queue
from orchestrator.plan.plan import secret_values
from orchestrator.pod.client import Agent
from orchestrator.pod.retry import Retry, before_launch
from orchestrator.pod.session import PodSession
from orchestrator.results import Result
from orchestrator.shared.answers import RunSummary
from orchestrator.shared.plan import Plan
from orchestrator.shared.run_ids import order
from orchestrator.tasks.follow import Choice, bring_home, called, directory
from orchestrator.tasks.request import Request
from orchestrator.tasks.validate import bring_tree
from orchestrator.text import plain


def resume(request: Request, session: PodSession, claim: Claim, run: str) -> Result:
    """Go on with `run` (a run id or its beginning; empty: the newest of the commit that died) at its first unfinished
    stage, and judge it. PodError, with the reason, if it is not to be gone on with.

    What only the pod can tell (files, environment, GPUs) its agent checks.
    """
    request.warn(session.progress)
    if claim.wait:
        queue(session)
    with session.open() as agent:
        session.facts(agent)  # the promised GPU
        run_id = _choose(request, agent, run)
        own = directory(agent, run_id, Choice(request.repo.root, None, None, request.artifacts))
        _refuse_another(request, own.plan())
        before_launch(agent, session.progress, lambda there: bring_tree(request, there, session.progress))
        _launch(session, agent, run_id, secret_values(own.plan(), request.variables), claim)
        session.progress.say(f"run {run_id} goes on on pod {session.pod.name}")
        return bring_home(session, agent, own)


def _launch(session: PodSession, agent: Agent, run_id: str, secrets: Secrets, claim: Claim) -> None:
    """Have the run gone on with; asked again should the connection break, for it may have arrived or not."""
    way_back = f"nsa-pod fetch --pod {session.pod.name} {run_id}"
    retry = Retry(session.open, session.progress, "the run may go on", way_back)
    while True:
        try:
            return retry.until_done(lambda there: launcher_of(there).resume(run_id, who(), secrets), agent)
        except PodBusy as busy:
            if busy.holder.get("run_id") == run_id:  # it goes on already
                return
            claim.on_busy(session, launcher_of(agent), busy)


def _choose(request: Request, agent: Agent, run: str) -> str:
    known = agent.runs(run)
    if run:
        found = called(run, known, agent.pod.name)
        _refuse_living(agent, found)
        return found["run_id"]
    of_commit = (request.revision.commit, request.runbook.name)
    begun = [x for x in known if (x["commit"], x["runbook"]) == of_commit and x["bytes"] and not x.get("command")]
    lost = [x["run_id"] for x in begun if x["state"] == "lost"]
    if not lost:
        what = f"run of {request.runbook.name} on commit {request.revision.commit[:7]}"
        raise PodError(f"pod {agent.pod.name!r} has no {what} whose agent died: there is nothing to resume")
    return max(lost, key=order)


def _refuse_living(agent: Agent, run: RunSummary) -> None:
    ways_on = {"running": ("is still running", "follow"), "ended": ("has ended", "fetch")}
    if run["state"] in ways_on:
        how, command = ways_on[run["state"]]
        name, run_id = agent.pod.name, shlex.quote(plain(run["run_id"]))
        raise PodError(f"run {run_id} on pod {name!r} {how}: nsa-pod {command} --pod {name} {run_id}")


def _refuse_another(request: Request, plan: Plan) -> None:
    """A run of another tree or runbook is another run."""
    run_id, commit, runbook = plan["run_id"], plan["commit"][:7], plan["runbook"]
    if plan["tree"] != request.revision.tree:
        raise PodError(
            f"run {run_id} is of commit {commit}, whose tree is not that of {request.revision.commit[:7]}: "
            f"expected --commit {commit}"
        )
    if runbook["sha256"] != request.file.sha256:
        raise PodError(
            f"run {run_id} was launched with another content of the runbook {runbook['name']} than "
            f"{request.origin['path']} has now: start a new run"
        )
