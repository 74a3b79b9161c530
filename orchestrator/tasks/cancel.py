"""Stop a run on a pod; what has run until then is kept."""

from __future__ import annotations

from orchestrator.errors import PodError
from orchestrator.home import who
from orchestrator.launchers import launcher_of
from orchestrator.launchers.claim import ends
from orchestrator.pod.session import PodSession


def cancel(session: PodSession, run: str | None) -> str:
    """Have `run` (or the run that holds the pod) stopped; its run id, once it has."""
    with session.open() as agent:
        name = session.pod.name
        running = [found["run_id"] for found in agent.runs() if found["state"] == "running"]
        wanted = [run_id for run_id in running if run is None or run_id.startswith(run)]
        if len(wanted) != 1:
            raise PodError(f"pod {name!r}: {_why_not(run, running)}")
        launcher = launcher_of(agent)
        within = launcher.cancel(wanted[0], by=who())
        if within is None:
            raise PodError(f"pod {name!r}: run {wanted[0]} ended before it could be cancelled")
        if not ends(launcher, wanted[0], within, session.progress):
            raise PodError(f"pod {name!r}: run {wanted[0]} was cancelled and killed, and still holds the pod")
        return wanted[0]


def _why_not(run: str | None, running: list[str]) -> str:
    """Why it is not clear which run was meant."""
    if not running:
        return f"run {run} is not running there, nor is any other" if run else "no run is running there"
    return f"expected one of the runs that are running there, {', '.join(running)}" + (f", got {run}" if run else "")
