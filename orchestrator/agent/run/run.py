"""One run from its plan to its last journal line, in a process of its own that needs nobody."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import shutil
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

from orchestrator.agent.env import interpreter, lease
from orchestrator.agent.evidence.provided import Provided
from orchestrator.agent.git.pristine import Pristine
from orchestrator.agent.host import gpu, machine, processes
from orchestrator.agent.host.reaper import Reaper
from orchestrator.agent.layout import Layout
from orchestrator.agent.lock import Lock
from orchestrator.agent.run import leftovers, prepare, resume, secret_values, temporary
from orchestrator.agent.run.executor import Executor
from orchestrator.agent.run.ground import Ground
from orchestrator.agent.run.supervise import Supervisor
from orchestrator.shared import disk, tree
from orchestrator.shared import plan as plans
from orchestrator.shared.events import (
    AgentError,
    Beginning,
    EnvironmentChecked,
    LimitReached,
    RunEnded,
    RunResumed,
    RunStarted,
    TreeChecked,
)
from orchestrator.shared.failure import Failure
from orchestrator.shared.journal import Journal
from orchestrator.shared.plan import FORMAT, Plan
from orchestrator.shared.stage_record import RunEndedBy


class Cancellation:
    """Set by SIGTERM; whoever waits for file descriptors sees `wakeup_fd` become readable."""

    def __init__(self) -> None:
        self.requested = False
        self.wakeup_fd, write_end = os.pipe()
        for fd in (self.wakeup_fd, write_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._request)
        # Handlers, not SIG_IGN, which the stages would inherit. An ended child must wake the supervisor too.
        for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
            signal.signal(signum, lambda *_: None)

    def _request(self, *_: object) -> None:
        self.requested = True


class Interruption:
    """What ends a run before its stages are through: a person, or the limit in its plan. The first found stays."""

    def __init__(self, plan: Plan, cancellation: Cancellation, elapsed: Callable[[], float]) -> None:
        limit = plan["limit"]
        self._seconds = limit["seconds"] - limit["spent"] if limit else float("inf")
        self._cancellation = cancellation
        self._elapsed = elapsed
        self.reason: Optional[RunEndedBy] = None

    def why(self) -> Optional[RunEndedBy]:
        """What ends the run now: "cancel" or "limit"; None to go on."""
        if self._cancellation.requested:
            self.reason = self.reason or "cancel"
        elif self._elapsed() >= self._seconds:
            self.reason = self.reason or "limit"
        return self.reason


@dataclass(frozen=True)
class _Run:
    """A run that has the pod."""

    plan: Plan
    places: Layout
    cancellation: Cancellation
    secrets: secret_values.Secrets


@dataclass(frozen=True)
class _Ready:
    """The ground of each commit's stages, by the commit's name; and what was finished before."""

    grounds: Mapping[str, Ground]
    records: Mapping[str, Mapping[str, Any]]


def execute(
    run_dir: Path,
    started: Callable[[Optional[Dict[str, Any]]], None],
    given: secret_values.Values,
    resumed_by: Optional[str] = None,
) -> None:
    """Take the pod's lock, call `started`, and run the plan in `run_dir` to its end, with the secrets `given`.

    With `resumed_by` (who asks), go on where an agent that died had left off. `started` gets what a dead holder of the
    lock had written into it. lock.Busy if the pod is held, Failure if the plan is not to be run; both before `started`
    is called, and a run that cannot be resumed is left as it is.
    """
    plan = plans.load(run_dir)
    if plan["format"] != FORMAT:
        raise Failure(f"run {plan['run_id']} has a plan of another version of nsa-pod: start a new run")
    secret_values.require(plan["stages"], given)
    run = _Run(plan, Layout(run_dir), Cancellation(), secret_values.Secrets(given))
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    lock = Lock(run.places.workdir, {"holder": resumed_by or plan["who"], "since": now, "run_id": plan["run_id"]})
    try:
        with contextlib.ExitStack() as leases:
            for of_commit in plans.commits_of(plan).values():
                leases.enter_context(lease.taken(_managed_root(of_commit["environment"])))
                leases.enter_context(lease.taken(_layer_root(of_commit)))
            if resumed_by is None:
                journal, prepare_stages = _anew(run)
            else:
                try:
                    journal, prepare_stages = _again(run, resumed_by)
                except Failure as e:
                    raise Failure(f"run {plan['run_id']} cannot be resumed: {e}") from e
            found = leftovers.end(run.places.workdir)
            started(lock.dead)
            _run_and_record(run, journal, prepare_stages, found)
    finally:
        lock.release()


def _managed_root(environment: Mapping[str, Any]) -> Optional[Path]:
    return Path(environment["root"]) if environment["kind"] == "managed" else None


def _layer_root(plan: Plan) -> Optional[Path]:
    """Of the repository's own installation; Failure if it is one of another tree."""
    layer = plan["environment"].get("layer")
    if layer and layer["tree"] != plan["tree"]:
        raise Failure(f"layer {layer['key']} was built from the tree {layer['tree']}, not from this commit's")
    return Path(layer["root"]) if layer else None


def _anew(run: _Run) -> Tuple[Journal, Callable[[], _Ready]]:
    """A new journal, and what makes the ground of the stages and writes down that it is there."""
    try:
        journal = Journal(run.places.journal, run.secrets.redactor.clean)
    except FileExistsError as e:
        raise Failure(f"run {run.plan['run_id']} was launched before") from e

    def prepare() -> _Ready:
        journal.append(RunStarted(event="run_started", **_beginning(run.plan)))
        grounds = {
            name: _ground(of, journal, _make_tree(of, of.places.tree), _inspect(of)) for name, of in _commits(run)
        }
        return _Ready(grounds, {})

    return journal, prepare


def _again(run: _Run, by: str) -> Tuple[Journal, Callable[[], _Ready]]:
    """The journal of a run that is gone on with; all that may keep it from that is found before a line is written."""
    if "beside" in run.plan:
        raise Failure("it compares commits in one session: start a new run")
    past = resume.look(run.plan, run.places)
    beginning = _beginning(run.plan)
    python = _inspect(run)
    past.require_same(beginning["gpus"], python)
    manifest = _make_tree(run, past.next_tree())
    past.put_aside(run.plan["stages"], run.secrets.redactor)
    journal = Journal(run.places.journal, run.secrets.redactor.clean, past.data)

    def prepare() -> _Ready:
        journal.append(RunResumed(event="run_resumed", by=by, finished=list(past.records), **beginning))
        return _Ready({"": _ground(run, journal, manifest, python)}, past.records)

    return journal, prepare


def _commits(run: _Run) -> Iterator[Tuple[str, _Run]]:
    """The run as it is for each commit that it has stages of."""
    for name, plan in plans.commits_of(run.plan).items():
        yield name, dataclasses.replace(run, plan=plan, places=dataclasses.replace(run.places, beside=name))


def _inspect(run: _Run) -> interpreter.Interpreter:
    """The environment's Python, for this commit."""
    python = interpreter.inspect(run.plan["environment"], prepare.wanted_modules(run.plan["stages"]))
    if not python.editables:
        return python
    pristine, absent = run.places.pristine(run.plan["tree"]), tree.without_files(run.plan["submodules"])
    return python.without_editables_of(Provided.by_tree(pristine, absent).names)


def _ground(run: _Run, journal: Journal, manifest: tree.Manifest, python: interpreter.Interpreter) -> Ground:
    """Of a commit whose tree is there, and whose environment must stay as it is; both are told."""
    journal.append(TreeChecked(event="tree_checked", ok=True, tree=run.plan["tree"], files=len(manifest)))
    fingerprint = interpreter.recorded_fingerprint(python) or python.fingerprint()
    ok = python.still(fingerprint) is not None
    told = EnvironmentChecked(
        event="environment_checked",
        fingerprint=fingerprint if ok else python.fingerprint(),
        ok=ok,
        python=python.version,
        beside=run.places.beside,
    )
    journal.append(told)
    return Ground(run.plan, run.places, python, manifest, fingerprint, run.secrets)


def _run_and_record(run: _Run, journal: Journal, prepare: Callable[[], _Ready], found: leftovers.Leftovers) -> None:
    """Run with every ending written down: completed, cancelled, at its limit, or the agent's own error.

    After an error a stage may still be running: then the reaper is left to its work, as after the agent's death.
    """
    processes.become_subreaper()
    reaper = Reaper(run.plan["run_id"], functools.partial(temporary.forget, run.places.short))
    try:
        ready = prepare()
        if found.tell:
            journal.append(found.event())
        reason = _run_stages(run, journal, ready, reaper.pid)
    except Failure as e:
        journal.append(AgentError(event="agent_error", error=str(e), traceback=""))
        reason = "agent error"
    except Exception as e:  # whatever it is, the run must say that it ended, and why
        error = f"{type(e).__name__}: {disk.told(e, run.places.workdir) if isinstance(e, OSError) else e}"
        journal.append(AgentError(event="agent_error", error=error, traceback=traceback.format_exc()))
        reason = "agent error"
    journal.append(RunEnded(event="run_ended", reason=reason))
    journal.close()
    if reason != "agent error":
        reaper.dismiss()


def _run_stages(run: _Run, journal: Journal, ready: _Ready, reaper_pid: int) -> str:
    """Run what is not finished; why the run ended."""
    _make_places(run.places)
    interruption = Interruption(run.plan, run.cancellation, lambda: journal.elapsed)
    supervisor = Supervisor(run.cancellation.wakeup_fd, interruption.why, own=[reaper_pid])
    executor = Executor(run.plan, run.places, journal, ready.grounds, supervisor, run.secrets)
    executor.take_over(ready.records)
    for number, stage in enumerate(run.plan["stages"]):
        if stage["name"] not in ready.records and not interruption.why():
            executor.run_stage(number, stage)
    executor.finish()
    if interruption.reason == "cancel":
        journal.append(resume.cancelled(run.places))
        return "cancelled"
    if interruption.reason == "limit":
        given = run.plan["limit"]["given"] if run.plan["limit"] else ""
        journal.append(LimitReached(event="limit_reached", limit=given, seconds=round(journal.elapsed, 3)))
        return "limit reached"
    return "completed"


def _beginning(plan: Plan) -> Beginning:
    """What the journal says of the run, the agent and the machine as it begins, or is gone on with."""
    return {
        "format": FORMAT,
        "run_id": plan["run_id"],
        "plan_sha256": plans.plan_hash(plan),
        "agent": _own_hash(),
        "pid": os.getpid(),
        "boot_id": machine.boot_id(),
        "host": socket.gethostname(),
        "agent_python": sys.version.split()[0],
        "gpus": gpu.list_gpus() if plan["promises"]["cuda"] else [],
    }


def _own_hash() -> str | None:
    """The hash in the name of the zipapp that this is; None when it runs from a directory."""
    archive = Path(sys.argv[0])
    return hashlib.sha256(archive.read_bytes()).hexdigest()[:16] if archive.suffix == ".pyz" else None


def _make_tree(run: _Run, where: Path) -> tree.Manifest:
    """The run's own copy of the tree, checked by content; Failure if it is not the commit's."""
    plan, places = run.plan, run.places
    pristine = places.pristine(plan["tree"])
    if not pristine.is_dir():
        raise Failure(f"the tree {plan['tree']} is not on the pod: expected it in {pristine}")
    where.parent.mkdir(parents=True, exist_ok=True)
    manifest = tree.copy(pristine, where)
    wrong = tree.wrong_hash(manifest, plan["tree"], plan["submodules"])
    if wrong:
        Pristine(pristine).forget()  # the next sync reads all of it, and replaces it
        shutil.rmtree(where)
        raise Failure(f"{pristine} is not the commit's tree: {wrong}")
    return manifest


def _make_places(places: Layout) -> None:
    places.artifacts.mkdir(exist_ok=True)  # a run that is gone on with has it
    # A pytest that finds no configuration in the tree looks for one above it: it shall not find anybody's.
    (places.run_dir / "pytest.ini").write_text("[pytest]\n")
