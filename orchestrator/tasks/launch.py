"""Launch a plan on a pod: what this laptop remembers is written first, then the pod is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.errors import PodBusy
from orchestrator.launchers import launcher_of
from orchestrator.launchers.base import Secrets
from orchestrator.launchers.claim import Claim
from orchestrator.pod.client import Agent
from orchestrator.pod.retry import Retry
from orchestrator.pod.session import PodSession
from orchestrator.shared.plan import Plan, plan_hash
from orchestrator.store.launches import Launch, forget, remember
from orchestrator.store.run_directory import RunDirectory, create


def launch(
    session: PodSession, agent: Agent, plan: Plan, secrets: Secrets, artifacts: Path, repo: Path, claim: Claim
) -> RunDirectory:
    """Launch `plan` on the pod, detached; `claim` says what is done while another run holds the pod."""
    while True:
        try:
            return _launch(session, agent, plan, secrets, artifacts, repo)
        except PodBusy as busy:
            claim.on_busy(session, launcher_of(agent), busy)


def _launch(
    session: PodSession, agent: Agent, plan: Plan, secrets: Secrets, artifacts: Path, repo: Path
) -> RunDirectory:
    """The laptop's copy of the plan and the record of the launch are written first: whatever happens after,
    this run is judged by that plan, and never mistaken for another. Should the connection break, the launch is
    repeated: it may have arrived or not.
    """
    run, run_id = create(artifacts, repo, plan), plan["run_id"]
    pod = session.pod
    remember(Launch(run_id, pod.name, plan["commit"], str(repo), str(run.path), plan_hash(plan), pod.inventory))
    way_back = f"nsa-pod fetch --pod {plan['pod']} {run_id}"
    retry = Retry(session.open, session.progress, "the run may have begun", way_back)
    try:
        said = retry.until_done(lambda there: launcher_of(there).start(plan, secrets), agent)
    except PodBusy:  # it was refused, so there is no such run
        forget(run_id)
        shutil.rmtree(run.path)
        raise
    if said:
        session.progress.say(said)
    return run
