"""Runs that exist already: choose one, follow it home, cancel it, list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError, IntegrityError, PodError
from orchestrator.git.repository import Repository
from orchestrator.home import who
from orchestrator.plan.plan import Plan, read_plan
from orchestrator.pod.client import Agent
from orchestrator.pod.download import limits_of
from orchestrator.pod.session import Door
from orchestrator.results import Result
from orchestrator.store import launches
from orchestrator.store.run_directory import RunDirectory, create, kept, open_directory
from orchestrator.tasks.follow import Follower
from orchestrator.text import count
from orchestrator.ui import Progress


@dataclass(frozen=True)
class Choice:
    """Which run: `run` (a run id or its beginning), else the newest of the repository; of `commit` if that is given.

    It is kept where it was launched to be kept, else under `artifacts`; with `here`, there in any case.
    """

    repo: Path
    commit: str | None
    run: str | None
    artifacts: Path
    here: bool = False


def follow(door: Door, choice: Choice, progress: Progress, *, wait: bool) -> Result:
    """Bring the chosen run home (with `wait`, to its end) and judge it."""
    commit = Repository.open(choice.repo).resolve(choice.commit).commit if choice.commit else None
    repo = None if choice.run else Repository.open(choice.repo)  # a run that is named needs none
    with door.open() as agent:
        run_id = _newest(agent, repo, commit) if repo else _named(agent, str(choice.run))
        run = directory(agent, run_id, choice)
        of = run.plan().commit
        if commit not in (None, of):
            raise PodError(f"run {run_id} on pod {door.pod.name!r} is of commit {of[:7]}, not of {choice.commit}")
        return bring_home(door, agent, run, progress, wait=wait)


def bring_home(door: Door, agent: Agent, run: RunDirectory, progress: Progress, *, wait: bool = True) -> Result:
    """Follow the run over `agent`, and over new connections should that one break, and judge it."""
    progress.expect_stages([stage.name for stage in run.plan().stages])
    follower = Follower(door.open, run, progress, limits_of(door.pod), wait)
    return run.settle(follower.follow(agent), follower.refused, follower.left, follower.seen)


def cancel(door: Door, run: str | None) -> str:
    """Ask the agent of `run` (or of the run that holds the pod) to stop; the run id."""
    with door.open() as agent:
        known = agent.runs()
        running = [r["run_id"] for r in known if r["state"] == "running"]
        wanted = [r for r in running if run is None or r.startswith(run)]
        if len(wanted) != 1:
            what = f"run {run}" if run else "a run"
            raise PodError(f"pod {door.pod.name!r}: {what} is not running there: expected one of {running or 'none'}")
        if not agent.cancel(wanted[0], by=who()):
            raise PodError(f"pod {door.pod.name!r}: run {wanted[0]} ended before it could be cancelled")
        return str(wanted[0])


def on_pod(door: Door) -> list[dict[str, Any]]:
    """The runs on the pod, newest first."""
    with door.open() as agent:
        return sorted(agent.runs(), key=lambda run: str(run["run_id"]), reverse=True)


def kept_here(artifacts: Path, repo: Path) -> list[dict[str, Any]]:
    """The runs kept under `artifacts`, newest first, each judged again."""
    listed = []
    for run in kept(artifacts, repo):
        try:
            result = run.rejudge()
        except FileNotFoundError:  # its pod has just refused it
            continue
        except InputError as e:  # one that is damaged does not hide the others
            listed.append({"run_id": run.path.name, "verdict": "error", "error": str(e)})
            continue
        listed.append({"run_id": result.run_id, "pod": result.pod, "state": result.state, "verdict": result.verdict})
    return listed


def _named(agent: Agent, run: str) -> str:
    return str(called(run, agent.runs(), agent.pod.name)["run_id"])


def _newest(agent: Agent, repo: Repository, commit: str | None) -> str:
    known = agent.runs()
    _refuse_older(agent.pod.name, {str(run["run_id"]) for run in known}, repo, commit)
    wanted = [str(run["run_id"]) for run in known if _is_of(run, repo, commit)]
    if not wanted:
        of = f"commit {commit[:7]}" if commit else f"a commit of {repo.root}"
        raise PodError(f"pod {agent.pod.name!r} has no run of {of}")
    return max(wanted)  # run ids begin with their time


def called(name: str, known: Sequence[Mapping[str, Any]], pod: str) -> Mapping[str, Any]:
    """The one run of `known` whose id is `name` or begins with it; PodError if there is none, or more."""
    found = [run for run in known if str(run["run_id"]).startswith(name)]
    if len(found) != 1:
        raise PodError(f"pod {pod!r} knows {count(len(found), 'run')} called {name}: expected one")
    return found[0]


def _is_of(run: Mapping[str, Any], repo: Repository, commit: str | None) -> bool:
    return str(run["commit"]) == commit if commit else repo.has_commit(str(run["commit"]))


def _refuse_older(pod: str, known: Set[str], repo: Repository, commit: str | None) -> None:
    """A launch that the pod does not know is an error: yesterday's green must not stand in for it."""
    own = [x for x in launches.launches(pod) if x.repo == str(repo.root) and commit in (None, x.commit)]
    if own and own[0].run_id not in known:
        raise PodError(
            f"run {own[0].run_id} was launched from here and pod {pod!r} does not know it: the launch failed or the "
            "pod was replaced; an older run can be fetched by its run id"
        )


def directory(agent: Agent, run_id: str, choice: Choice) -> RunDirectory:
    """Where the run is kept here, with the plan that it was launched with: the laptop's own, else the pod's copy."""
    launch = launches.launch_of(run_id)
    own = Path(launch.directory, "plan.json") if launch else None
    if own and own.exists():
        if not choice.here:
            return open_directory(own.parent, choice.repo)
        return create(choice.artifacts, choice.repo, read_plan(own.read_text(errors="replace"), str(own)))
    return create(choice.artifacts, choice.repo, plan_on_pod(agent, run_id))


def plan_on_pod(agent: Agent, run_id: str) -> Plan:
    """The pod's copy of a run's plan; IntegrityError if it is not what the run id was made from."""
    plan = read_plan(agent.plan(run_id), f"the plan on pod {agent.pod.name!r}")
    if plan.run_id != run_id:
        raise IntegrityError(f"pod {agent.pod.name!r} gives the plan of run {plan.run_id} for run {run_id}")
    return plan
