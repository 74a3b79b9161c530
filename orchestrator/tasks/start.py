"""Put the plan on the pod and launch the agent, which from then on needs nobody."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.errors import PodBusy
from orchestrator.plan import Plan
from orchestrator.rundir import RunDirectory, create
from orchestrator.state import Launch, forget, remember
from orchestrator.tasks.probe import Agent


def start(agent: Agent, plan: Plan, artifacts: Path, repo: Path) -> RunDirectory:
    """Launch `plan` on the pod, detached; PodBusy if another run holds the pod.

    The laptop's copy of the plan and the record of the launch are written first: whatever happens after,
    this run is judged by that plan, and never mistaken for another.
    """
    run = create(artifacts, repo, plan)
    remember(Launch(plan.run_id, plan.pod, plan.commit, str(repo), str(run.path)))
    try:
        agent.launch(plan.run_id, plan.to_json().encode())
    except PodBusy:  # it was refused, so there is no such run
        forget(plan.run_id)
        shutil.rmtree(run.path)
        raise
    return run
