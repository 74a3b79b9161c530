"""One run from its plan to its last journal line, in a process of its own that needs nobody."""

from __future__ import annotations

import hashlib
import json
import os
import pkgutil
import signal
import socket
import sys
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Dict, Mapping

from . import gpu, host, interpreter, planfile, prepare, processes, tree
from .executor import Executor
from .failure import Failure
from .journal import Journal
from .layout import Layout
from .lock import Lock
from .reaper import Reaper
from .supervise import Supervisor

CANCEL_FILE = "cancel.json"
_SITECUSTOMIZE = "import nsa_pod_guard\n\nguard = nsa_pod_guard.install()\n"

Plan = Mapping[str, Any]


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


def execute(run_dir: Path, started: Callable[[], None]) -> None:
    """Take the pod's lock, call `started`, and run the plan in `run_dir` to its end.

    lock.Busy if the pod is held, Failure if the plan is not to be run; both before `started` is called.
    """
    plan = planfile.load(run_dir)
    places = Layout(run_dir)
    cancellation = Cancellation()
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    lock = Lock(places.workdir, {"holder": plan["who"], "since": now, "run_id": plan["run_id"], "pid": os.getpid()})
    try:
        try:
            journal = Journal(places.journal)
        except FileExistsError as e:
            raise Failure(f"run {plan['run_id']} was launched before") from e
        started()
        _run_and_record(plan, places, journal, cancellation)
    finally:
        lock.release()


def _run_and_record(plan: Plan, places: Layout, journal: Journal, cancellation: Cancellation) -> None:
    """Run with every ending written down: completed, cancelled, or the agent's own error.

    After an error a stage may still be running: then the reaper is left to its work, as after the agent's death.
    """
    processes.become_subreaper()
    reaper = Reaper(plan["run_id"])
    try:
        reason = _run(plan, places, journal, cancellation, reaper.pid)
    except Failure as e:
        journal.append("agent_error", error=str(e), traceback="")
        reason = "agent error"
    except Exception as e:  # whatever it is, the run must say that it ended, and why
        journal.append("agent_error", error=f"{type(e).__name__}: {e}", traceback=traceback.format_exc())
        reason = "agent error"
    journal.append("run_ended", reason=reason)
    journal.close()
    if reason != "agent error":
        reaper.dismiss()


def _run(plan: Plan, places: Layout, journal: Journal, cancellation: Cancellation, reaper_pid: int) -> str:
    journal.append("run_started", **_facts(plan))
    manifest = _make_tree(plan, places)
    journal.append("tree_checked", ok=True, tree=plan["tree"], files=len(manifest))
    python = interpreter.inspect(plan["environment"], prepare.wanted_modules(plan["stages"]))
    fingerprint = python.fingerprint()
    expected = interpreter.recorded_fingerprint(python) or fingerprint
    journal.append("environment_checked", fingerprint=fingerprint, ok=fingerprint == expected, python=python.version)
    _make_places(places)
    supervisor = Supervisor(cancellation.wakeup_fd, lambda: cancellation.requested, own=[reaper_pid])
    executor = Executor(plan, places, journal, python, manifest, expected, supervisor)
    for number, stage in enumerate(plan["stages"]):
        if not cancellation.requested:
            executor.run_stage(number, stage)
    if cancellation.requested:
        journal.append("cancelled", by=_cancelled_by(places))
    return "cancelled" if cancellation.requested else "completed"


def _facts(plan: Plan) -> Dict[str, Any]:
    """What run_started says of the run, the agent and the machine."""
    return {
        "run_id": plan["run_id"],
        "plan_sha256": planfile.plan_hash(plan),
        "agent": _own_hash(),
        "pid": os.getpid(),
        "boot_id": host.boot_id(),
        "host": socket.gethostname(),
        "agent_python": sys.version.split()[0],
        "gpus": gpu.list_gpus() if plan["promises"].get("cuda") else [],
    }


def _own_hash() -> str | None:
    """The hash in the name of the zipapp that this is; None when it runs from a directory."""
    archive = Path(sys.argv[0])
    return hashlib.sha256(archive.read_bytes()).hexdigest()[:16] if archive.suffix == ".pyz" else None


def _make_tree(plan: Plan, places: Layout) -> tree.Manifest:
    """The run's own copy of the tree, checked by content; Failure if it is not the commit's."""
    pristine = places.pristine(plan["tree"])
    if not pristine.is_dir():
        raise Failure(f"the tree {plan['tree']} is not on the pod: expected it in {pristine}")
    tree.copy(pristine, places.tree)
    manifest = tree.scan(places.tree)
    wrong = tree.wrong_hash(manifest, plan["tree"], tree.submodules_of(plan))
    if wrong:
        raise Failure(f"{pristine} is not the commit's tree: {wrong}")
    try:
        tree.make_git(places.tree, plan["commit"], plan.get("commit_object"))
    except ValueError as e:
        raise Failure(str(e)) from e
    return manifest


def _make_places(places: Layout) -> None:
    places.artifacts.mkdir()
    places.plugin.mkdir()
    for module, file in (("guard", "nsa_pod_guard"), ("pytest_plugin", prepare.PYTEST_PLUGIN)):
        source = pkgutil.get_data(__package__ or "", f"{module}.py")
        (places.plugin / f"{file}.py").write_bytes(source or b"")
    (places.plugin / "sitecustomize.py").write_text(_SITECUSTOMIZE)


def _cancelled_by(places: Layout) -> str:
    """Who asked, as `cancel` wrote it down; a signal from elsewhere has no name."""
    try:
        return str(json.loads((places.run_dir / CANCEL_FILE).read_bytes())["by"])
    except (OSError, ValueError, LookupError, TypeError):
        return "a signal"
