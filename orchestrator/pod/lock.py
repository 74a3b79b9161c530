"""One run at a time on a pod: wait for the one that holds it, take the pod from it, or leave it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError, PodBusy
from orchestrator.home import who
from orchestrator.pod.client import Agent
from orchestrator.pod.retry import Contact
from orchestrator.pod.session import Door
from orchestrator.text import plain
from orchestrator.ui import Progress

_LOOK_S = 10.0
# A stage has its grace, and what is left of it is killed then; the agent writes that down before it lets the pod go.
_GIVES_WAY_S = 120.0


@dataclass(frozen=True)
class Claim:
    """What to do about a run that holds the pod: wait for its end, or take the pod from it; neither refuses."""

    wait: bool = False
    steal: bool = False

    def __post_init__(self) -> None:
        if self.wait and self.steal:
            raise InputError("expected --wait or --steal, not both")

    def make_way(self, door: Door, agent: Agent, busy: PodBusy) -> None:
        """The pod that was busy is not held by that run any more; `busy` where neither was asked for."""
        if self.steal and busy.holder.get("run_id"):
            _steal(agent, busy.holder, door.progress)
        elif self.wait:
            queue(door)
        else:
            raise busy


def queue(door: Door) -> None:
    """Wait until nobody holds the pod, saying who does; it outlasts broken connections."""
    name = door.pod.name
    said: set[str] = set()

    def look(agent: Agent) -> None:
        holder = agent.holder()
        while holder is not None:
            run = str(holder.get("run_id"))
            if run not in said:
                door.progress.say(f"waiting for pod {name!r}: held by {held_by(holder)}")
                said.add(run)
            door.progress.busy(f"waiting for pod {name} · run {run}")
            holder = agent.holder(wait=_LOOK_S)
            contact.advance()

    contact = Contact(door.open, door.progress, "the pod is held as it was", "try --wait again")
    contact.keep(look)


def held_by(holder: Mapping[str, Any]) -> str:
    """Who holds a pod, since when and for what."""
    by, since, run = (plain(holder.get(key, "unknown")) for key in ("holder", "since", "run_id"))
    return f"{by} since {since} for run {run}"


def _steal(agent: Agent, holder: Mapping[str, Any], progress: Progress) -> None:
    """Have the holder's run cancelled, as for the one who asks, and wait until it has let the pod go."""
    run = str(holder["run_id"])
    progress.warn(f"taking pod {agent.pod.name!r} from {held_by(holder)}, which is cancelled")
    agent.cancel(run, by=who(), stolen=True)
    end = time.monotonic() + _GIVES_WAY_S
    found = agent.holder(wait=_LOOK_S)
    while found is not None and found.get("run_id") == run:
        if time.monotonic() > end:
            raise PodBusy(f"pod {agent.pod.name!r}: run {run} was cancelled and does not give way", found)
        found = agent.holder(wait=_LOOK_S)
