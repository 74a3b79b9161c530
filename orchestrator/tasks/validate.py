"""The whole road: a commit, a pod and a runbook become a result."""

from __future__ import annotations

import dataclasses
import time
from functools import partial

from orchestrator.config.inventory import Pod
from orchestrator.errors import PodBusy, PodError
from orchestrator.launchers.base import Secrets
from orchestrator.launchers.claim import Claim, held_by, queue
from orchestrator.plan.limits import after, describe
from orchestrator.plan.plan import Capabilities, Place, do_the_same, make_plan, secret_values, unmet
from orchestrator.pod.client import Agent
from orchestrator.pod.facts import PodFacts
from orchestrator.pod.retry import before_launch, while_it_runs
from orchestrator.pod.session import PodSession
from orchestrator.pod.sync import sync
from orchestrator.results import Result
from orchestrator.shared.answers import Holder
from orchestrator.shared.plan import Changed, Environment, Machine, Plan
from orchestrator.shared.run_ids import order
from orchestrator.store import launches, machines, trusted
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks.follow import Choice, bring_home, directory, plan_on_pod
from orchestrator.tasks.launch import launch
from orchestrator.tasks.layers import environment_of
from orchestrator.tasks.request import Request
from orchestrator.text import count, seconds, size
from orchestrator.ui import Progress


def validate(request: Request, session: PodSession, claim: Claim) -> Result:
    """Run the request on the session's pod and judge what really ran; `claim` is for a pod that is held."""
    request.warn(session.progress)
    if claim.wait:
        queue(session)
    with session.open() as agent:
        run = before_launch(agent, session.progress, partial(_begin, request, session, claim))
        return bring_home(session, agent, run)


def _begin(request: Request, session: PodSession, claim: Claim, agent: Agent) -> RunDirectory:
    """The run that is launched, or followed because it does the same."""
    facts = session.facts(agent)
    holder = in_the_way(facts, claim)
    if not holder:
        return start(request, session, agent, facts, claim)
    running = _same_run(request, agent, facts, holder)
    if running is None or not _is_to_be_followed(running, holder, session):
        raise agent.busy(holder)  # only the launch takes hold of the pod, but there is much to do before it
    return directory(agent, running["run_id"], Choice(request.repo.root, None, None, request.artifacts))


def in_the_way(facts: PodFacts, claim: Claim) -> Holder | None:
    """Who holds the pod, if that is neither waited for nor ended."""
    holder = facts.raw["holder"]
    return holder if holder and not holder.get("dead") and not (claim.wait or claim.steal) else None


def expected(plan: Plan) -> str:
    """What the plan's stages may take, as a sentence."""
    return describe(plan["estimate"], plan["cost_per_hour"], plan["limit"]) if plan["estimate"] else ""


def bring_tree(request: Request, agent: Agent, progress: Progress) -> None:
    """The commit's tree on the pod."""
    began = time.monotonic()
    progress.busy(f"bringing commit {request.revision.commit[:7]} to pod {request.pod.name}")
    moved = sync(agent, request.repo, request.revision, request.contents)
    what = f"{count(moved.files, 'file')}, {size(moved.bytes)} moved" if moved else "already there"
    progress.say(f"commit {request.revision.commit[:7]} on pod {request.pod.name}: {what}, {_since(began)}")


def _same_run(request: Request, agent: Agent, facts: PodFacts, holder: Holder) -> Plan | None:
    """The plan of the run that holds the pod, if it is what a run of this request would be."""
    try:
        running = plan_on_pod(agent, str(holder.get("run_id")))
    except PodError:  # there is none, or none that can be read here
        return None
    have = Capabilities(sm=facts.sm, packages=frozenset(running["environment"].get("packages", ())))
    own = make_plan(request.work, Place(running["environment"], have, running["facts"], agent.workdir))
    return running if do_the_same(own, running) else None


def _is_to_be_followed(running: Plan, holder: Holder, session: PodSession) -> bool:
    """Whether to follow a run that does what was asked for; PodBusy says how, where nobody can be asked."""
    name = session.pod.name
    same = f"{held_by(holder)}, which runs this very commit and runbook"
    if session.confirm:
        return session.confirm(f"pod {name!r} is held by {same}: follow that run?")
    raise PodBusy(
        f"pod {name!r} is held by {same}: follow it (nsa-pod follow --pod {name} {running['run_id']}), wait for its "
        "end to run it again (--wait), or cancel it and take the pod (--steal)",
        holder,
    )


def start(request: Request, session: PodSession, agent: Agent, facts: PodFacts, claim: Claim) -> RunDirectory:
    """Bring what the run needs, and launch it."""
    plan = prepare(request, agent, facts, session.progress)
    if not request.command:
        session.progress.say(expected(plan))
    return begin(plan, secret_values(plan, request.variables), request, session, agent, claim)


def begin(
    plan: Plan, secrets: Secrets, request: Request, session: PodSession, agent: Agent, claim: Claim
) -> RunDirectory:
    """Launch the plan; its results are kept where the request says."""
    progress = session.progress
    progress.busy(f"starting run {plan['run_id']}")
    run = launch(session, agent, plan, secrets, request.artifacts, request.repo.root, claim)
    with while_it_runs(session.open, progress, plan["pod"], plan["run_id"]).interruptible():
        machines.remember(request.pod, plan["run_id"], plan["facts"])
        progress.say(f"run {plan['run_id']} started on pod {plan['pod']}")
        progress.busy("checking tree and environment")
    return run


def prepare(request: Request, agent: Agent, facts: PodFacts, progress: Progress) -> Plan:
    """Tree and environment on the pod, and the plan that uses them; what that took counts against the run's limit."""
    trusted.tell_what_leaves(request.pod, request.envs, progress.warn)
    arrived = time.monotonic()
    bring_tree(request, agent, progress)
    began = time.monotonic()
    progress.busy(f"looking for the environment on pod {request.pod.name}")
    environment = _environment(request, agent, facts, progress)
    environment["setup_seconds"] = round(time.monotonic() - began, 3)
    named = f"environment {environment['key']}" if environment.get("key") else "the pod's own Python"
    progress.say(f"{named} is ready: {_since(began)}")
    have = Capabilities(sm=facts.sm, packages=frozenset(environment.get("packages", ())))
    seen: Machine = {**facts.summary(), "host_key": agent.transport.fingerprint}
    machine = _machine(request.pod, seen, progress)
    work = request.work
    if work.limit:
        work = dataclasses.replace(work, limit=after(work.limit, time.monotonic() - arrived))
    # Of this pod alone: a wrong clock that dated a run there dates none anywhere else.
    known = (launch.run_id for launch in launches.launches(request.pod))
    newest = max([str(facts.raw.get("newest_run") or ""), *known], key=order)
    return make_plan(work, Place(environment, have, machine, agent.workdir), newest)


def _machine(pod: Pod, summary: Machine, progress: Progress) -> Machine:
    """The pod's facts, with what of its identity is another than at the last run there."""
    changed = machines.changes(pod, summary)
    if changed:
        progress.warn(f"pod {pod.name!r} is not as at its last run, {machines.last_run(pod)}: {'; '.join(changed)}")
    return {**summary, "changed_since": Changed(run_id=machines.last_run(pod), changes=changed) if changed else None}


def _environment(request: Request, agent: Agent, facts: PodFacts, progress: Progress) -> Environment:
    """The runbook's environment, with the commit's layer; where the required device is missing, all is blocked and
    nothing is built.
    """
    device = [condition for condition in request.runbook.requires if not condition.startswith("has:")]
    if unmet(device, Capabilities(sm=facts.sm, packages=frozenset())):
        return {"kind": "system", "python": agent.python, "packages": {}}
    return environment_of(agent, facts, request.needs, request.work.tree.parts, progress)


def _since(began: float) -> str:
    return seconds(time.monotonic() - began)
