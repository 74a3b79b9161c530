"""One run at a time on a pod: wait for the one that holds it, take the pod from it, or leave it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from orchestrator.errors import InputError, PodBusy
from orchestrator.home import who
from orchestrator.launchers import launcher_of
from orchestrator.launchers.base import Launcher
from orchestrator.pod.client import Agent
from orchestrator.pod.retry import Retry
from orchestrator.pod.session import PodSession
from orchestrator.shared.answers import Holder
from orchestrator.text import plain
from orchestrator.ui import Progress

_LOOK_S = 10.0
# What a pod may ask for: the graces of runbooks are shorter.
_MOST_PATIENCE_S = 900.0


@dataclass(frozen=True)
class Claim:
    """What to do about a run that holds the pod: wait for its end, or take the pod from it; neither refuses."""

    wait: bool = False
    steal: bool = False

    def __post_init__(self) -> None:
        if self.wait and self.steal:
            raise InputError("expected --wait or --steal, not both")

    def on_busy(self, session: PodSession, launcher: Launcher, busy: PodBusy) -> None:
        """The pod that was busy is not held by that run any more; `busy` where neither was asked for."""
        if self.steal and busy.holder.get("run_id"):
            _steal(session, launcher, busy.holder)
        elif self.wait:
            queue(session)
        else:
            raise busy


def queue(session: PodSession) -> None:
    """Wait until nobody holds the pod, saying who does; it outlasts broken connections."""
    name = session.pod.name
    said: set[str] = set()

    def wait_for_the_pod(agent: Agent) -> None:
        launcher = launcher_of(agent)
        holder = launcher.holder()
        while holder is not None:
            run = str(holder.get("run_id"))
            if run not in said:
                session.progress.say(f"waiting for pod {name!r}: held by {held_by(holder)}")
                said.add(run)
            session.progress.busy(f"waiting for pod {name} · run {run}")
            holder = launcher.holder(wait=_LOOK_S)
            retry.advance()

    retry = Retry(session.open, session.progress, "the pod is held as it was", "try --wait again")
    retry.until_done(wait_for_the_pod)


def held_by(holder: Holder) -> str:
    """Who holds a pod, since when and for what."""
    by, since, run = (plain(holder.get(key, "unknown")) for key in ("holder", "since", "run_id"))
    return f"{by} since {since} for run {run}"


def _steal(session: PodSession, launcher: Launcher, holder: Holder) -> None:
    """Have the holder's run cancelled, as for the one who asks, and wait until it has let the pod go."""
    run, name = str(holder["run_id"]), session.pod.name
    session.progress.warn(f"taking pod {name!r} from {held_by(holder)}, which is cancelled")
    within = launcher.cancel(run, by=who(), stolen=True)
    if within is not None and not ends(launcher, run, within, session.progress):
        raise PodBusy(f"pod {name!r}: run {run} was cancelled and killed, and does not give way", holder)


def ends(launcher: Launcher, run: str, within: float, progress: Progress) -> bool:
    """Whether the pod is free of a run that was asked to stop: killed, where it has not stopped within its time."""
    progress.busy(f"waiting for run {run} to stop")
    end = time.monotonic() + min(within, _MOST_PATIENCE_S)
    while _holds(launcher, run, max(0.0, min(_LOOK_S, end - time.monotonic()))):
        if time.monotonic() >= end:
            progress.warn(f"run {run} does not stop: it is killed")
            return launcher.end(run)
    return True


def _holds(launcher: Launcher, run: str, wait: float) -> bool:
    found = launcher.holder(wait=wait)
    return found is not None and found.get("run_id") == run
