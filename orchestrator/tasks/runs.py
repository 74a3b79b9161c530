"""Runs that exist already: choose one, follow it home, cancel it, list them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import state
from orchestrator.errors import IntegrityError, PodError
from orchestrator.plan import read_plan
from orchestrator.repo import Repository
from orchestrator.results import Result
from orchestrator.rundir import RunDirectory, create, kept, open_directory
from orchestrator.tasks.follow import Follower
from orchestrator.tasks.probe import Agent
from orchestrator.tasks.reach import Door
from orchestrator.text import count
from orchestrator.ui import Progress


@dataclass(frozen=True)
class Choice:
    """Which run: `run` (a run id or its beginning), else the newest of `commit`, else the newest of the repository."""

    repo: Path
    commit: str | None
    run: str | None
    artifacts: Path


def follow(door: Door, choice: Choice, progress: Progress, *, wait: bool) -> Result:
    """Bring the chosen run home (with `wait`, to its end) and judge it."""
    with door.open() as agent:
        run_id = _choose(agent, choice)
        run = _directory(agent, run_id, choice)
        progress.expect_stages([stage.name for stage in run.plan().stages])
        follower = Follower(door.open, run, progress, wait)
        return run.settle(follower.follow(agent), follower.refused)


def cancel(door: Door, run: str | None) -> str:
    """Ask the agent of `run` (or of the run that holds the pod) to stop; the run id."""
    with door.open() as agent:
        known = agent.runs()
        running = [r["run_id"] for r in known if r["state"] == "running"]
        wanted = [r for r in running if run is None or r.startswith(run)]
        if len(wanted) != 1:
            what = f"run {run}" if run else "a run"
            raise PodError(f"pod {door.pod.name!r}: {what} is not running there: expected one of {running or 'none'}")
        agent.cancel(wanted[0], by=state.who())
        return str(wanted[0])


def on_pod(door: Door) -> list[dict[str, Any]]:
    """The runs on the pod, newest first."""
    with door.open() as agent:
        return sorted(agent.runs(), key=lambda run: str(run["run_id"]), reverse=True)


def kept_here(artifacts: Path, repo: Path) -> list[dict[str, Any]]:
    """The runs kept under `artifacts`, newest first, each judged again."""
    listed = []
    for run in kept(artifacts, repo):
        result = run.rejudge()
        listed.append({"run_id": result.run_id, "pod": result.pod, "state": result.state, "verdict": result.verdict})
    return listed


def _choose(agent: Agent, choice: Choice) -> str:
    known = agent.runs()
    if choice.run:
        found = [str(run["run_id"]) for run in known if str(run["run_id"]).startswith(choice.run)]
        if len(found) != 1:
            raise PodError(f"pod {agent.pod.name!r} knows {count(len(found), 'run')} called {choice.run}: expected one")
        return found[0]
    repo = Repository.open(choice.repo)
    commit = repo.resolve(choice.commit).commit if choice.commit else None
    _refuse_older(agent.pod.name, {str(run["run_id"]) for run in known}, repo, commit)
    wanted = [str(run["run_id"]) for run in known if _is_of(run, repo, commit)]
    if not wanted:
        of = f"commit {commit[:7]}" if commit else f"a commit of {repo.root}"
        raise PodError(f"pod {agent.pod.name!r} has no run of {of}")
    return max(wanted)  # run ids begin with their time


def _is_of(run: Mapping[str, Any], repo: Repository, commit: str | None) -> bool:
    return str(run["commit"]) == commit if commit else repo.has_commit(str(run["commit"]))


def _refuse_older(pod: str, known: Set[str], repo: Repository, commit: str | None) -> None:
    """A launch that the pod does not know is an error: yesterday's green must not stand in for it."""
    own = [x for x in state.launches(pod) if x.repo == str(repo.root) and commit in (None, x.commit)]
    if own and own[0].run_id not in known:
        raise PodError(
            f"run {own[0].run_id} was launched from here and pod {pod!r} does not know it: the launch failed or the "
            "pod was replaced; an older run can be fetched by its run id"
        )


def _directory(agent: Agent, run_id: str, choice: Choice) -> RunDirectory:
    """Where the run is kept here, judged by the plan that it was launched with."""
    launch = state.launch_of(run_id)
    own = Path(launch.directory, "plan.json") if launch else None
    if own and own.exists():
        return open_directory(own.parent, choice.repo)
    plan = read_plan(agent.plan(run_id), f"the plan on pod {agent.pod.name!r}")
    if plan.run_id != run_id:
        raise IntegrityError(f"pod {agent.pod.name!r} gives the plan of run {plan.run_id} for run {run_id}")
    return create(choice.artifacts, choice.repo, plan)
