"""Run one command on a pod, in the environment and the tree of a commit: recorded as any run, and judged by nobody."""

from __future__ import annotations

from functools import partial

from orchestrator.launchers.claim import Claim, queue
from orchestrator.pod.client import Agent
from orchestrator.pod.retry import before_launch
from orchestrator.pod.session import PodSession
from orchestrator.results import Result
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks.follow import bring_home
from orchestrator.tasks.logs import Reading, Sinks
from orchestrator.tasks.request import COMMAND, Request
from orchestrator.tasks.validate import in_the_way, start


def run(request: Request, session: PodSession, claim: Claim, sinks: Sinks) -> Result:
    """Run the request's command, its output into `sinks` as it comes, and bring home what it leaves."""
    request.warn(session.progress)
    if claim.wait:
        queue(session)
    with session.open() as agent:
        run = before_launch(agent, session.progress, partial(_begin, request, session, claim))
        if sinks:
            session.progress.still()
            Reading(run.path.name, COMMAND, sinks).to_end(session, agent)
        return bring_home(session, agent, run)


def _begin(request: Request, session: PodSession, claim: Claim, agent: Agent) -> RunDirectory:
    facts = session.facts(agent)
    holder = in_the_way(facts, claim)
    if holder:
        raise agent.busy(holder)
    return start(request, session, agent, facts, claim)
