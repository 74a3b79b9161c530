"""Stop a run on a pod; what has run until then is kept."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import InputError, PodError
from orchestrator.git.repository import Repository
from orchestrator.home import who
from orchestrator.launchers import launcher_of
from orchestrator.launchers.claim import ends
from orchestrator.pod.session import PodSession
from orchestrator.shared.answers import RunSummary
from orchestrator.store import launches
from orchestrator.text import plain


def cancel(session: PodSession, run: str | None, folder: Path) -> str:
    """Have `run` stopped, or the run that holds the pod, if it is one's own; its run id, once it has."""
    elsewhere = Repository.open(folder) if run is None and folder != Path() else None  # what is wrong is said at once
    with session.open() as agent:
        name = session.pod.name
        running = {found["run_id"]: found for found in agent.runs() if found["state"] == "running"}
        wanted = [run_id for run_id in running if run is None or run_id.startswith(run)]
        if len(wanted) != 1:
            raise PodError(f"pod {name!r}: {_why_not(run, list(running))}")
        repo = elsewhere or _repository(folder) if run is None else None
        if run is None and not _is_own(running[wanted[0]], repo):
            by = plain(running[wanted[0]].get("who") or "somebody")
            raise PodError(
                f"pod {name!r}: run {wanted[0]}, which {by} launched, is none of {_whose(repo)}: name it to end it "
                f"all the same (nsa-pod cancel --pod {name} {wanted[0]})"
            )
        launcher = launcher_of(agent)
        within = launcher.cancel(wanted[0], by=who())
        if within is None:
            raise PodError(f"pod {name!r}: run {wanted[0]} ended before it could be cancelled")
        if not ends(launcher, wanted[0], within, session.progress):
            raise PodError(f"pod {name!r}: run {wanted[0]} was cancelled and killed, and still holds the pod")
        return wanted[0]


def _is_own(run: RunSummary, repo: Repository | None) -> bool:
    """Whether who names no run can mean this one: launched from this laptop, or of a commit of the repository.

    A pod is often shared.
    """
    launched_here = launches.launch_of(run["run_id"]) is not None
    return launched_here or (repo is not None and repo.has_commit(str(run["commit"])))


def _whose(repo: Repository | None) -> str:
    return f"this laptop's, nor of the repository {repo.root}" if repo else "this laptop's"


def _repository(folder: Path) -> Repository | None:
    try:
        return Repository.open(folder)
    except InputError:
        return None


def _why_not(run: str | None, running: list[str]) -> str:
    """Why it is not clear which run was meant."""
    if not running:
        return f"run {run} is not running there, nor is any other" if run else "no run is running there"
    return f"expected one of the runs that are running there, {', '.join(running)}" + (f", got {run}" if run else "")
