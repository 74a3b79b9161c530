"""fetch and follow: choose a run that exists already, bring it home, and judge it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.inventory import Pod
from orchestrator.errors import DiskError, InputError, IntegrityError, PodError
from orchestrator.git.repository import Repository
from orchestrator.launchers import launcher_of
from orchestrator.plan.plan import read_plan
from orchestrator.pod.client import Agent
from orchestrator.pod.download import quota_of
from orchestrator.pod.follower import Follower
from orchestrator.pod.retry import while_it_runs
from orchestrator.pod.session import PodSession
from orchestrator.results import Result
from orchestrator.shared.answers import RunSummary
from orchestrator.shared.plan import Plan, is_command
from orchestrator.shared.run_ids import is_ahead, order
from orchestrator.store import launches
from orchestrator.store.run_directory import RunDirectory, create, open_directory
from orchestrator.text import count


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


def follow(session: PodSession, choice: Choice, *, wait: bool) -> Result:
    """Bring the chosen run home (with `wait`, to its end) and judge it."""
    commit = Repository.open(choice.repo).revision(choice.commit).commit if choice.commit else None
    repo = None if choice.run else Repository.open(choice.repo)  # a run that is named needs none
    with session.open() as agent:
        run_id = _newest(agent, repo, commit) if repo else _named(agent, str(choice.run))
        run = directory(agent, run_id, choice)
        of = run.plan()["commit"]
        if commit not in (None, of):
            raise PodError(f"run {run_id} on pod {session.pod.name!r} is of commit {of[:7]}, not of {choice.commit}")
        return bring_home(session, agent, run, wait=wait)


def bring_home(session: PodSession, agent: Agent, run: RunDirectory, *, wait: bool = True) -> Result:
    """Follow the run over `agent`, and over new connections should that one break, and judge it."""
    with while_it_runs(session.open, session.progress, session.pod.name, run.path.name).interruptible():
        plan = run.plan()
        earlier = plan["estimate"].get("stages") if plan["estimate"] else None
        names = [stage["name"] for stage in plan["stages"]]
        session.progress.expect_stages(names, earlier, judged=not is_command(plan))
        follower = Follower(
            session.open,
            run,
            session.progress,
            quota_of(session.pod),
            lambda there: launcher_of(there).status(run.path.name),
            wait,
        )
    try:
        return run.settle(follower.follow(agent))
    except DiskError as e:
        raise DiskError(f"{e}; nothing is lost on the pod: nsa-pod fetch --pod {plan['pod']} {run.path.name}") from e


def _named(agent: Agent, run: str) -> str:
    return called(run, agent.runs(run), agent.pod.name)["run_id"]


def _newest(agent: Agent, repo: Repository, commit: str | None) -> str:
    known = agent.runs()
    own = _last_launch(agent.pod, {run["run_id"] for run in known}, repo, commit)
    if own and is_ahead(own):  # by its date it is the newest of none
        return own
    wanted = [run["run_id"] for run in known if _is_of(run, repo, commit)]
    if not wanted:
        of = f"commit {commit[:7]}" if commit else f"a commit of {repo.root}"
        raise PodError(f"pod {agent.pod.name!r} has no run of {of}")
    newest = max(wanted, key=order)
    _refuse_unreadable(newest, {run["run_id"] for run in known})
    return newest


def called(name: str, known: Sequence[RunSummary], pod: str) -> RunSummary:
    """The one run of `known` whose id is `name` or begins with it; PodError if there is none, or more."""
    found = [run for run in known if run["run_id"].startswith(name)]
    if len(found) != 1:
        raise PodError(f"pod {pod!r} knows {count(len(found), 'run')} called {name}: expected one")
    return found[0]


def _is_of(run: RunSummary, repo: Repository, commit: str | None) -> bool:
    if run.get("command"):  # nobody judges it: it is fetched by its run id
        return False
    return str(run["commit"]) == commit if commit else repo.has_commit(str(run["commit"]))


def _last_launch(pod: Pod, known: Set[str], repo: Repository, commit: str | None) -> str | None:
    """The last run that was launched from here, to be judged. One that the pod does not know is an error: yesterday's
    green must not stand in for it.
    """
    own = (x for x in launches.launches(pod) if x.repo == str(repo.root) and commit in (None, x.commit))
    last = next((x.run_id for x in own if not open_directory(Path(x.directory), repo.root).has_no_verdict), None)
    if last and last not in known:
        raise PodError(
            f"run {last} was launched from here and pod {pod.name!r} does not know it: the launch failed or "
            "the pod was replaced; an older run can be fetched by its run id"
        )
    return last


def _refuse_unreadable(newest: str, known: Set[str]) -> None:
    """A damaged record may be of a launch that came after `newest` and failed."""
    unknown = [run_id for run_id in launches.damaged() if run_id not in known]
    later = [run_id for run_id in unknown if is_ahead(run_id) or order(run_id) > order(newest)]
    if later:
        raise InputError(
            f"{launches.file_of(later[0])} is damaged: expected the record of a launch, which may be newer than run "
            f"{newest}; delete it, or name the run"
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
    if plan["run_id"] != run_id:
        raise IntegrityError(f"pod {agent.pod.name!r} gives the plan of run {plan['run_id']} for run {run_id}")
    return plan
