"""Run one command on a pod, in the environment and the tree of a commit: recorded as any run, and judged by nobody."""

from __future__ import annotations

from orchestrator.launchers.claim import Claim, queue
from orchestrator.pod.session import PodSession
from orchestrator.results import Result
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
        facts = session.facts(agent)
        holder = in_the_way(facts, claim)
        if holder:
            raise agent.busy(holder)
        run = start(request, session, agent, facts, claim)
        if sinks:
            session.progress.still()
            Reading(run.path.name, COMMAND, sinks).to_end(session, agent)
        return bring_home(session, agent, run)
