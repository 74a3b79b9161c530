"""Put the plan on the pod and launch the agent, which from then on needs nobody."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.errors import PodBusy
from orchestrator.plan.plan import Plan
from orchestrator.pod.client import Agent, Secrets
from orchestrator.pod.lock import Claim
from orchestrator.pod.retry import Contact
from orchestrator.pod.session import Door
from orchestrator.store.launches import Launch, forget, remember
from orchestrator.store.run_directory import RunDirectory, create
from orchestrator.text import plain


def start(
    door: Door, agent: Agent, plan: Plan, secrets: Secrets, artifacts: Path, repo: Path, claim: Claim
) -> RunDirectory:
    """Launch `plan` on the pod, detached; `claim` says what is done while another run holds the pod.

    `secrets` are the values that the plan only names, by stage: they go to the agent's memory and are written down
    nowhere.
    """
    while True:
        try:
            return _launch(door, agent, plan, secrets, artifacts, repo)
        except PodBusy as busy:
            claim.make_way(door, agent, busy)


def _launch(door: Door, agent: Agent, plan: Plan, secrets: Secrets, artifacts: Path, repo: Path) -> RunDirectory:
    """The laptop's copy of the plan and the record of the launch are written first: whatever happens after,
    this run is judged by that plan, and never mistaken for another. Should the connection break, the launch is
    repeated: it may have arrived or not.
    """
    run = create(artifacts, repo, plan)
    remember(Launch(plan.run_id, plan.pod, plan.commit, str(repo), str(run.path), plan.sha256))
    way_back = f"nsa-pod fetch --pod {plan.pod} {plan.run_id}"
    contact = Contact(door.open, door.progress, "the run may have begun", way_back)
    try:
        dead = contact.keep(lambda there: there.launch(plan.run_id, plan.to_json().encode(), secrets), agent)
    except PodBusy:  # it was refused, so there is no such run
        forget(plan.run_id)
        shutil.rmtree(run.path)
        raise
    if dead:
        how = "with the machine, which was started again" if dead.get("rebooted") else "without letting the pod go"
        door.progress.say(
            f"run {plain(dead.get('run_id'))} of {plain(dead.get('holder'))} died {how}; --resume goes on with it"
        )
    return run
