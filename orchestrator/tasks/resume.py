"""Go on with a run whose agent died: the same tree, runbook, environment and GPUs, or not at all."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from orchestrator.errors import PodBusy, PodError
from orchestrator.home import who
from orchestrator.plan.plan import Plan, secret_values
from orchestrator.pod.client import Agent, Secrets
from orchestrator.pod.lock import Claim, queue
from orchestrator.pod.retry import Contact
from orchestrator.pod.session import Door
from orchestrator.results import Result
from orchestrator.tasks import runs
from orchestrator.tasks.validate import Request, bring_tree, warn
from orchestrator.text import plain
from orchestrator.ui import Progress


def resume(asked: Request, door: Door, progress: Progress, claim: Claim, run: str) -> Result:
    """Go on with `run` (a run id or its beginning; empty: the newest of the commit that died) at its first unfinished
    stage, and judge it. PodError, with the reason, if it is not to be gone on with.

    What only the pod can tell (files, environment, GPUs) its agent checks.
    """
    warn(asked, progress)
    if claim.wait:
        queue(door)
    with door.open() as agent:
        door.facts(agent)  # the promised GPU
        run_id = _choose(asked, agent, run)
        own = runs.directory(agent, run_id, runs.Choice(asked.repo.root, None, None, asked.artifacts))
        _check(asked, own.plan())
        bring_tree(asked, agent, progress)
        _launch(door, agent, run_id, secret_values(own.plan(), asked.variables), claim)
        progress.say(f"run {run_id} goes on on pod {door.pod.name}")
        return runs.bring_home(door, agent, own, progress)


def _launch(door: Door, agent: Agent, run_id: str, secrets: Secrets, claim: Claim) -> None:
    """Have the run gone on with; asked again should the connection break, for it may have arrived or not."""
    way_back = f"nsa-pod fetch --pod {door.pod.name} {run_id}"
    contact = Contact(door.open, door.progress, "the run may go on", way_back)
    while True:
        try:
            return contact.keep(lambda there: there.resume(run_id, who(), secrets), agent)
        except PodBusy as busy:
            if busy.holder.get("run_id") == run_id:  # it goes on already
                return
            claim.make_way(door, agent, busy)


def _choose(asked: Request, agent: Agent, run: str) -> str:
    known = agent.runs()
    if run:
        found = runs.called(run, known, agent.pod.name)
        _refuse_living(agent, found)
        return str(found["run_id"])
    of_commit = (asked.revision.commit, asked.runbook.name)
    begun = [x for x in known if (x["commit"], x["runbook"]) == of_commit and x["bytes"]]
    lost = [str(x["run_id"]) for x in begun if x["state"] == "lost"]
    if not lost:
        what = f"run of {asked.runbook.name} on commit {asked.revision.commit[:7]}"
        raise PodError(f"pod {agent.pod.name!r} has no {what} whose agent died: there is nothing to resume")
    return max(lost)  # run ids begin with their time


def _refuse_living(agent: Agent, run: Mapping[str, Any]) -> None:
    ways_on = {"running": ("is still running", "follow"), "ended": ("has ended", "fetch")}
    if run["state"] in ways_on:
        how, command = ways_on[run["state"]]
        name, run_id = agent.pod.name, shlex.quote(plain(run["run_id"]))
        raise PodError(f"run {run_id} on pod {name!r} {how}: nsa-pod {command} --pod {name} {run_id}")


def _check(asked: Request, plan: Plan) -> None:
    """A run of another tree or runbook is another run."""
    if plan.tree != asked.revision.tree:
        raise PodError(
            f"run {plan.run_id} is of commit {plan.commit[:7]}, whose tree is not that of {asked.revision.commit[:7]}: "
            f"expected --commit {plan.commit[:7]}"
        )
    if plan.runbook.sha256 != asked.file.sha256:
        raise PodError(
            f"run {plan.run_id} was launched with another content of the runbook {plan.runbook.name} than "
            f"{asked.runbook_path} has now: start a new run"
        )
