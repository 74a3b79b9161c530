"""Random schedules of faults against the real agent and the real command line.

python -m tests.support.faults.schedules 17      # one seed again; the moments are the same, the machine's speed is not
python -m tests.support.faults.schedules --count 500 --jobs 3
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from orchestrator.agent import lock
from orchestrator.agent.host import processes
from tests.support.disk import Disk, mounted
from tests.support.faults import box, laptop, world
from tests.support.faults.model import DISKS, STAGE, Claims, Fault, Schedule
from tests.support.project import Project, local_pod, new_project
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd, new_sshd
from tests.support.waiting import wait_for

_COMMAND_LIMIT_S = 90.0
_CODES = {"passed": 0, "failed": 1, "incomplete": 3, "error": 4}


class Place:
    """The pod of a schedule, and what can be done to it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.workdir = folder / "workdir"
        self.entry: dict[str, Any] = local_pod(folder)
        self.proxy: Proxy | None = None
        self.box: box.Box | None = None
        self.server: Sshd | None = None
        if kind == "box":
            self.box = box.Box(folder / "box", [folder])
            self.workdir, self.server = self.box.workdir, self.box.server
        elif kind == "ssh":
            self.server = new_sshd(folder / "sshd").start()
        if self.server:
            self.proxy = Proxy(self.server.port).start()
            self.entry = self.server.entry(workdir=str(self.workdir), port=self.proxy.port)

    def close(self) -> None:
        for pid in self.of_agents():
            processes.send(signal.SIGKILL, [pid])
        if self.box:
            self.box.power_off()
        elif self.server:
            self.server.stop()
        if self.proxy:
            self.proxy.stop()

    def of_agents(self) -> list[int]:
        """The agent and its helper, and whatever the pod's run has started."""
        marked = [pid for run in world.runs_of(self.workdir) for pid in processes.marked(run.name)]
        return [*world.agents(self.workdir), *marked]

    def power_cut(self) -> None:
        """Everything on the pod ends at once; this machine as a pod takes its laptop with it (see `_Play`)."""
        if self.box:
            self.box.power_off()
            return
        doomed = self.of_agents()
        processes.send(signal.SIGSTOP, doomed)
        processes.send(signal.SIGKILL, [*doomed, *self.of_agents()])

    def repair(self) -> None:
        """The network, the server and the machine are there again."""
        processes.send(signal.SIGCONT, world.agents(self.workdir))
        if self.box and self.box.server.process is None:
            self.box.boot()
        elif self.server and self.server.process is None:
            self.server.start()
        if self.proxy:
            self.proxy.cut_after(None)
            self.proxy.cut_each(None)
            self.proxy.resume()


class _Play:
    """One schedule as it is played, with the commands that it has started."""

    def __init__(self, schedule: Schedule, folder: Path, place: Place) -> None:
        self.schedule, self.folder, self.place = schedule, folder, place
        self.accounts = folder / "accounts"
        self.accounts.mkdir()
        self.project: Project = new_project(folder, {"p": place.entry})
        self.project.commit({"stage.sh": STAGE, "runbooks/r.yaml": schedule.runbook(self.accounts)})
        self.commands: list[laptop.Laptop] = []
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._acts: dict[str, Callable[[Fault], object]] = {
            "kill laptop": lambda _: self._latest(lambda command: command.kill()),
            "interrupt laptop": lambda _: self._latest(lambda command: command.signal(signal.SIGINT)),
            "laptop sleeps": self._sleep,
            "kill agent": self._kill_agent,
            "agent stands still": self._stand_still,
            "cancel": lambda _: self.start("cancel", "--pod", "p", "--json"),
            "second validate": lambda _: self.validate(),
            "second validate waits": lambda _: self.validate("--wait"),
            "second validate steals": lambda _: self.validate("--steal"),
            "second follow": lambda _: self.start("follow", "--pod", "p", "--json"),
            "fetch what is there": lambda _: self.start("fetch", "--pod", "p", "--json", "--no-wait"),
            "power cut": self._power_cut,
            "cut": lambda _: self._proxy.cut(),
            "cut soon": lambda fault: self._proxy.cut_once_after(int(fault.lasting * 30_000)),
            "dead line": self._dead_line,
            "sshd restarts": self._restart_sshd,
            "cut each": lambda fault: self._proxy.cut_each(60_000 + int(fault.lasting * 600_000)),
            "kill reaper": self._kill_reaper,
            "agent and reaper stop": self._all_stop,
            "prune": lambda _: self.start("prune", "--pod", "p", "--keep", "1", "--json"),
            "another laptop follows": lambda _: self._elsewhere("follow", "--artifacts", str(folder / "other")),
            "another laptop fetches": lambda _: self._elsewhere("fetch", "--artifacts", str(folder / "other")),
            "another laptop cancels": lambda _: self._elsewhere("cancel"),
            "the pod's disk is full": lambda fault: self._fill(self.place.workdir, fault),
            "the laptop's disk is full": lambda fault: self._fill(self.artifacts, fault),
        }

    @property
    def _proxy(self) -> Proxy:
        assert self.place.proxy is not None
        return self.place.proxy

    @property
    def artifacts(self) -> Path:
        return self.project.root / "artifacts"

    def start(self, *arguments: str, **variables: str) -> laptop.Laptop:
        output = self.folder / f"command-{len(self.commands)}"
        environment = self.project.environment(TMPDIR=str(self.folder), **variables)
        self.commands.append(laptop.start(arguments, self.project.root, environment, output))
        return self.commands[-1]

    def validate(self, *more: str) -> laptop.Laptop:
        return self.start("validate", "--pod", "p", "--runbook", "r", "--json", *more)

    def _elsewhere(self, *arguments: str) -> laptop.Laptop:
        """On a laptop that has launched nothing."""
        return self.start(*arguments, "--pod", "p", "--json", NSA_POD_HOME=str(self.folder / "other-home"))

    def play(self) -> None:
        """The run and its faults, then peace, until every command has ended and the pod is at rest."""
        first = self.validate()
        if self.schedule.under_way:
            wait_for(lambda: first.ended or self._stage_has_begun(), "a stage", _COMMAND_LIMIT_S)
        began = time.monotonic()
        for fault in self.schedule.faults:
            self._pass_time(began + fault.at)
            self._acts[fault.name](fault)
        self._pass_time(max([time.monotonic(), *(at for at, _ in self._later)]))
        self.place.repair()
        for command in self.commands:
            command.wake()
        for command in self.commands:
            assert command.wait(_COMMAND_LIMIT_S) is not None, f"{command.arguments} does not end"
        if self._reaper_killed:  # then the next run ends what the one before has left
            assert self.validate("--wait").wait(_COMMAND_LIMIT_S) is not None, "the next run does not end"
        wait_for(lambda: world.is_at_rest(self.place.workdir), "a pod at rest", 30)

    def _stage_has_begun(self) -> bool:
        journals = self.place.workdir.glob("runs/*/journal.jsonl")
        return any(b'"event":"stage_started"' in journal.read_bytes() for journal in journals)

    def _pass_time(self, until: float) -> None:
        """Wait, and end on time what lasts only for a while."""
        for at, act in sorted(self._later, key=lambda item: item[0]):
            if at <= until:
                time.sleep(max(0.0, at - time.monotonic()))
                act()
        self._later = [item for item in self._later if item[0] > until]
        time.sleep(max(0.0, until - time.monotonic()))

    def _after(self, fault: Fault, act: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + fault.lasting, act))

    def _latest(self, act: Callable[[laptop.Laptop], object]) -> None:
        for command in [c for c in self.commands if not c.ended][-1:]:
            act(command)

    def _sleep(self, fault: Fault) -> None:
        def fall_asleep(command: laptop.Laptop) -> None:
            command.sleep()
            if self.place.proxy:
                self._after(fault, self._proxy.cut)
            self._after(fault, command.wake)

        self._latest(fall_asleep)

    def _signal_agent(self, signum: int) -> None:
        agent = world.agent(self.place.workdir)
        processes.send(signum, [agent] if agent else [])

    def _kill_agent(self, fault: Fault) -> None:
        """When the dead agent's lock is free, nothing of its run is left: the next run has the pod for itself."""
        held = lock.holder(self.place.workdir)
        self._signal_agent(signal.SIGKILL)
        if held and "run_id" in held:
            run_id = str(held["run_id"])
            wait_for(lambda: self._has_let_go(run_id), f"a free pod after the agent of {run_id} was killed", 20)

    def _has_let_go(self, run_id: str) -> bool:
        holder = lock.holder(self.place.workdir)
        if holder is not None and holder.get("run_id") == run_id:
            return False
        left = [] if self._reaper_killed else processes.marked(run_id)
        assert not left, f"the pod is free, and {run_id} still has {[processes.describe(pid) for pid in left]}"
        return True

    def _stand_still(self, fault: Fault) -> None:
        self._signal_agent(signal.SIGSTOP)
        self._after(fault, lambda: self._signal_agent(signal.SIGCONT))

    @property
    def _reaper_killed(self) -> bool:
        return any(fault.name == "kill reaper" for fault in self.schedule.faults)

    def _kill_reaper(self, fault: Fault) -> None:
        agent = world.agent(self.place.workdir)
        if agent:
            processes.send(signal.SIGKILL, [pid for pid in world.agents(self.place.workdir) if pid != agent])

    def _all_stop(self, fault: Fault) -> None:
        stopped = world.agents(self.place.workdir)
        processes.send(signal.SIGSTOP, stopped)
        self._after(fault, lambda: processes.send(signal.SIGCONT, stopped))

    def _fill(self, where: Path, fault: Fault) -> None:
        full = ExitStack()
        full.enter_context(Disk(where).full())
        self._after(fault, full.close)

    def _power_cut(self, fault: Fault) -> None:
        if not self.place.box:
            for command in self.commands:
                command.kill()
        self.place.power_cut()
        self._after(fault, self.place.repair)

    def _dead_line(self, fault: Fault) -> None:
        self._proxy.stall()
        self._after(fault, self._proxy.resume)

    def _restart_sshd(self, fault: Fault) -> None:
        server = self.place.server
        if server and server.process:
            sessions = server.sessions()
            server.process.kill()
            server.process.wait(10)
            processes.send(signal.SIGKILL, sessions)
            server.process = None
            self._after(fault, self.place.repair)

    def judge(self) -> None:
        """Fetch what the pod has, as its user would, and hold every word that was said against what happened."""
        claims = Claims(self.schedule, self.accounts)
        names = {fault.name for fault in self.schedule.faults}
        for command in list(self.commands):
            self._check_command(command, claims, names)
        runs = world.runs_of(self.place.workdir)
        claims.check_apart([run.name for run in runs])
        for run in runs:
            if self.schedule.resumes:
                self._resume(run, claims, names)
            fetched = self.start("fetch", "--pod", "p", "--json", run.name)
            assert fetched.wait(_COMMAND_LIMIT_S) is not None, "the fetch does not end"
            self._check_command(fetched, claims, names)
            result = fetched.result
            assert result and "run_id" in result, f"{fetched.exit_code}: {fetched.stderr}"
            claims.check_end(result, world.events_of(run), names)
            home = world.home_of(self.project.root / "artifacts", run.name)
            world.check_home(run, home)
            self._check_stdout(result, home)

    def _resume(self, run: Path, claims: Claims, names: set[str]) -> None:
        """Go on with a run whose agent died; it then ends as if nothing had happened, or it says why it cannot."""
        events = world.events_of(run)
        if not events or events[-1]["event"] == "run_ended":
            return
        resumed = self.validate("--resume", run.name)
        assert resumed.wait(_COMMAND_LIMIT_S) is not None, "the resumed run does not end"
        self._check_command(resumed, claims, names)
        wait_for(lambda: world.is_at_rest(self.place.workdir), "a pod at rest", 30)
        ended = world.events_of(run)[-1]["event"] == "run_ended"
        excused = "cancelled by" in resumed.stderr or "the pod's disk is full" in names
        assert ended or excused, f"it was not resumed: {resumed.stderr}"

    def _check_command(self, command: laptop.Laptop, claims: Claims, names: set[str]) -> None:
        said = command.stderr
        assert "Traceback" not in said, f"{command.arguments}:\n{said}"
        code, result = command.exit_code, command.result
        if code is None or code < 0:
            return  # killed
        assert code in (0, 1, 3, 4, 130), f"{command.arguments}: exit code {code}: {said}"
        if result and "stages" in result:
            assert code == _CODES[result["verdict"]], f"{command.arguments}: exit code {code}, {result['verdict']}"
            claims.check(result, names)
        elif command.arguments[0] not in ("cancel", "prune"):
            assert code != 0, f"{command.arguments}: exit code 0 and no result"

    def _check_stdout(self, result: dict[str, Any], home: Path) -> None:
        """What a stage that passed has written is here, to the last byte."""
        stdout = {stage.name: stage.stdout for stage in self.schedule.stages}
        for told in result["stages"]:
            if told["status"] == "passed":
                assert (home / "artifacts" / f"{told['name']}.txt").read_text() == stdout[told["name"]]

    def told(self) -> Iterator[str]:
        """What the commands said, for the report of a failure."""
        for command in self.commands:
            yield f"--- {' '.join(command.arguments)}: {command.exit_code}\n{command.stderr}"


def run_seed(seed: int) -> str | None:
    """Play the schedule of `seed`; what went wrong, or None. The files of a failure stay."""
    schedule = Schedule.of(seed)
    folder = Path(tempfile.mkdtemp(prefix=f"nsa-schedule-{seed}-"))
    with _played(schedule, folder) as play:
        try:
            play.play()
            play.judge()
        except Exception:
            return f"{schedule}\n{traceback.format_exc()}\n{''.join(play.told())}\nfiles: {folder}"
    shutil.rmtree(folder, ignore_errors=True)
    return None


@contextmanager
def _played(schedule: Schedule, folder: Path) -> Iterator[_Play]:
    with ExitStack() as disks:
        place = Place(schedule.place, folder)
        play = _Play(schedule, folder, place)
        if DISKS.keys() & {fault.name for fault in schedule.faults}:
            for small in (place.workdir, play.artifacts):
                disks.enter_context(mounted(small, "size=24m,mode=700"))
        try:
            yield play
        finally:
            for command in play.commands:
                command.kill()
            place.close()


def run_seeds(seeds: list[int], jobs: int) -> dict[int, str]:
    """The failures among `seeds`, played `jobs` at a time; each is printed as it is found."""
    failures = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run_seed, seed): seed for seed in seeds}
        for number, done in enumerate(as_completed(waiting), start=1):
            seed, wrong = waiting[done], done.result()
            if wrong:
                failures[seed] = wrong
                print(f"FAILED: python -m tests.support.faults.schedules {seed}\n{wrong}\n", flush=True)
            if number % 25 == 0:
                print(f"{number} of {len(seeds)} schedules, {len(failures)} failed", flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.faults.schedules")
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--count", type=int, default=0, help="the seeds 0 to COUNT - 1")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    given = parser.parse_args()
    seeds = given.seeds + list(range(given.count))
    for seed in given.seeds[:20]:
        print(Schedule.of(seed))
    began = time.monotonic()
    failures = run_seeds(seeds, given.jobs)
    print(f"{len(seeds)} schedules in {time.monotonic() - began:.0f} s: {len(failures)} failed: {sorted(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
