"""Stop a run on a pod; what has run until then is kept."""

from __future__ import annotations

from orchestrator.errors import PodError
from orchestrator.home import who
from orchestrator.launchers import launcher_of
from orchestrator.pod.session import PodSession


def cancel(session: PodSession, run: str | None) -> str:
    """Ask the agent of `run` (or of the run that holds the pod) to stop; the run id."""
    with session.open() as agent:
        name = session.pod.name
        running = [found["run_id"] for found in agent.runs() if found["state"] == "running"]
        wanted = [run_id for run_id in running if run is None or run_id.startswith(run)]
        if len(wanted) != 1:
            what = f"run {run}" if run else "a run"
            raise PodError(f"pod {name!r}: {what} is not running there: expected one of {running or 'none'}")
        if not launcher_of(agent).cancel(wanted[0], by=who()):
            raise PodError(f"pod {name!r}: run {wanted[0]} ended before it could be cancelled")
        return wanted[0]
