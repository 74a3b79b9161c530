"""Run one stage's process group within its limits: read its streams, stop it when it must be, leave nothing behind."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from orchestrator.agent.host import processes, umask
from orchestrator.agent.host.cuda_watch import CudaWatch
from orchestrator.agent.host.gpu_use import memory_of
from orchestrator.agent.run.logs import EventFile, Log
from orchestrator.shared.redaction import NOTHING, Redactor
from orchestrator.shared.stage_record import EndedBy, RunEndedBy

_STACK_DUMP_S = 1.0  # from asking for the stacks to SIGTERM
_SETTLE_S = 0.5  # for helpers that end by themselves after the stage's own process
_LEFTOVER_TERM_S = 2.0
_KILL_S = 5.0  # a process that SIGKILL does not end in this time hangs in the kernel: the run goes on without it
_DRAIN_S = 1.0  # for output that is still in the pipes when nothing of the stage is left
_POLL_S = 0.02
_TICK_S = 1.0  # output events, and the longest that a limit may be overrun
_PIECE = 1 << 16  # what a pipe holds on Linux
GATHER_S = 0.02
"""How long what comes is left to gather: to wake who waits at a pipe costs a stage more than to write a line to it."""


class CannotStart(Exception):
    """The program could not be started; the message is a sentence."""


@dataclass(frozen=True)
class Command:
    """What to run and where its streams go; `events` is for the pytest plugin's, whose fd `fd_variable` names, and
    `on_events` sees them as they come.
    """

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    stdout: Path
    stderr: Path
    log_bytes: int
    events: Optional[Path] = None
    fd_variable: str = ""
    on_events: Callable[[bytes], None] = lambda piece: None
    redactor: Redactor = NOTHING
    beside: Sequence[int] = ()  # helpers of the agent's own while it runs
    cuda_watch: Optional[CudaWatch] = None


@dataclass(frozen=True)
class Limits:
    """Seconds: of wall time, without output, from SIGTERM to SIGKILL."""

    wall: float
    silence: float
    grace: float


@dataclass
class Ending:
    """How it ended. `exit_code` is None after a signal; `ended_by` says what stopped it: its wall or silence limit, or
    the end of the whole run by cancel or limit."""

    exit_code: Optional[int] = None
    signal: Optional[str] = None
    ended_by: Optional[EndedBy] = None
    seconds: float = 0.0
    truncated: Dict[str, int] = field(default_factory=dict)
    redacted: Dict[str, List[str]] = field(default_factory=dict)
    leftovers: List[Dict[str, Any]] = field(default_factory=list)


class Supervisor:
    """Runs commands one after the other. `wakeup_fd` becomes readable when a signal comes; `interrupted` says
    what ends the whole run now, if anything does; processes in `own` are the agent's helpers and not the stage's.
    """

    def __init__(self, wakeup_fd: int, interrupted: Callable[[], Optional[RunEndedBy]], own: Sequence[int]) -> None:
        self._wakeup_fd = wakeup_fd
        self._interrupted = interrupted
        self._own = own

    def run(self, command: Command, limits: Limits, on_output: Callable[[str, float, Log], None]) -> Ending:
        """Run `command` to its end. `on_output(stream, elapsed, log)` is called at most once a second.

        CannotStart if the program, or its logs, cannot be. What `on_output` raises ends the command.
        """
        try:
            running = _Running(command, limits, self._wakeup_fd, [*self._own, *command.beside])
        except OSError as e:
            raise CannotStart(f"the stage's logs cannot be written: {e}") from e
        with running:
            return running.to_end(self._interrupted, on_output)


class _Running:
    """One process group while it runs."""

    def __init__(self, command: Command, limits: Limits, wakeup_fd: int, own: Sequence[int]) -> None:
        self._limits = limits
        self._own = own
        paths = {"stdout": command.stdout, "stderr": command.stderr}
        self._logs = {name: Log(path, command.log_bytes, command.redactor) for name, path in paths.items()}
        self._events = EventFile(command.events, command.redactor, command.on_events) if command.events else None
        self._cuda_watch = command.cuda_watch
        self._selector = selectors.DefaultSelector()
        self._selector.register(wakeup_fd, selectors.EVENT_READ)
        self._signals = selectors.DefaultSelector()
        self._signals.register(wakeup_fd, selectors.EVENT_READ)
        self._start = self._last_output = time.monotonic()
        self._last_report = self._start - _TICK_S
        self._stage_fds: set[int] = set()
        self._unreported: set[str] = set()
        self._process = self._spawn(command)

    def __enter__(self) -> "_Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            processes.send_to_group(signal.SIGKILL, self._process.pid)
        self._close_all()

    def _close_all(self) -> None:
        for fd in list(self._stage_fds):
            self._close(fd)
        self._selector.close()
        self._signals.close()
        for log in self._logs.values():
            log.close()
        if self._events:
            self._events.close()

    def to_end(
        self, interrupted: Callable[[], Optional[RunEndedBy]], on_output: Callable[[str, float, Log], None]
    ) -> Ending:
        ending = Ending()
        stopping: Optional[_Stopping] = None
        while self._process.poll() is None and not (stopping and stopping.given_up):
            ending.ended_by = ending.ended_by or self._reason_to_stop(interrupted)
            if ending.ended_by:
                dump = ending.ended_by in ("wall", "silence")
                stopping = stopping or _Stopping(self._process.pid, self._limits.grace, dump)
                stopping.advance(self._below)
            if self._cuda_watch:
                self._cuda_watch.look(self._below)
            self._report(on_output)
            if self._read(self._time_to_wait(stopping)):
                self._signals.select(GATHER_S)
            processes.reap_orphans(self._process.pid)
        ending.seconds = round(time.monotonic() - self._start, 3)
        self._record_code(ending)
        self._clean_up(ending)
        for log in self._logs.values():
            log.close()
        ending.truncated = {name: log.cut for name, log in self._logs.items() if log.cut}
        ending.redacted = {name: log.redacted for name, log in self._logs.items() if log.redacted}
        return ending

    def _spawn(self, command: Command) -> "subprocess.Popen[bytes]":
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        writers = [out_write, err_write]
        self._watch(out_read, self._logs["stdout"])
        self._watch(err_read, self._logs["stderr"])
        env = dict(command.env)
        if self._events:
            event_read, event_write = os.pipe()
            writers.append(event_write)
            self._watch(event_read, self._events)
            env[command.fd_variable] = str(event_write)
        try:
            return subprocess.Popen(
                list(command.argv),
                cwd=command.cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=err_write,
                pass_fds=writers[2:],
                start_new_session=True,
                preexec_fn=_as_stage(),
            )
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            self._close_all()
            raise CannotStart(f"{command.argv[0]} cannot be started: {getattr(e, 'strerror', None) or e}") from e
        finally:
            for fd in writers:
                os.close(fd)

    def _watch(self, fd: int, sink: Union[Log, EventFile]) -> None:
        os.set_blocking(fd, False)
        self._stage_fds.add(fd)
        self._selector.register(fd, selectors.EVENT_READ, sink)

    def _close(self, fd: int) -> None:
        self._stage_fds.discard(fd)
        self._selector.unregister(fd)
        os.close(fd)

    def _read(self, timeout: float) -> bool:
        """Wait for output, or a signal, for at most `timeout`; take what is there. Whether that is little, so that
        nobody waits for room in a pipe.
        """
        most = 0
        for key, _ in self._selector.select(max(0.0, timeout)):
            try:
                piece = os.read(key.fd, _PIECE)
            except BlockingIOError:
                continue
            if key.data is None:
                continue
            if not piece:
                self._close(key.fd)
                continue
            key.data.write(piece)
            most = max(most, len(piece))
            self._last_output = time.monotonic()
            self._unreported.update(name for name, log in self._logs.items() if log is key.data)
        return 0 < most < _PIECE // 2

    def _report(self, on_output: Callable[[str, float, Log], None]) -> None:
        now = time.monotonic()
        if self._unreported and now - self._last_report >= _TICK_S:
            name = self._unreported.pop()
            self._last_report = now
            on_output(name, round(now - self._start, 3), self._logs[name])

    def _reason_to_stop(self, interrupted: Callable[[], Optional[RunEndedBy]]) -> Optional[EndedBy]:
        now = time.monotonic()
        why = interrupted()
        if why:
            return why
        if now - self._start >= self._limits.wall:
            return "wall"
        return "silence" if now - self._last_output >= self._limits.silence else None

    def _time_to_wait(self, stopping: Optional["_Stopping"]) -> float:
        now = time.monotonic()
        ends = stopping.next_step if stopping else self._start + self._limits.wall
        quiet = now + _TICK_S if stopping else self._last_output + self._limits.silence
        look = self._cuda_watch.wait() if self._cuda_watch else _TICK_S
        return min(ends - now, quiet - now, look, _TICK_S)

    def _record_code(self, ending: Ending) -> None:
        code = self._process.returncode
        if code is None:
            return
        if code >= 0:
            ending.exit_code = code
        else:
            ending.signal = _signal_name(-code)

    def _clean_up(self, ending: Ending) -> None:
        """End what the stage left running, name it, and take the output that is still in the pipes."""
        if not self._pump(lambda: not self._below(), _SETTLE_S) or not processes.LINUX:
            ending.leftovers = _described(self._below())
            self._end_leftovers()
        self._pump(lambda: not self._stage_fds, _DRAIN_S)
        processes.reap_orphans(self._process.pid if self._process.returncode is None else 0)

    def _end_leftovers(self) -> None:
        for signum, patience in ((signal.SIGTERM, _LEFTOVER_TERM_S), (signal.SIGKILL, _KILL_S)):
            if not processes.LINUX:
                processes.send_to_group(signum, self._process.pid)
            elif self._below():
                self._pump(lambda s=signum: self._send_below(s), patience)  # type: ignore[misc]

    def _send_below(self, signum: int) -> bool:
        """Signal what is left (it may still be multiplying); whether nothing is."""
        below = self._below()
        processes.send(signum, below)
        return not below

    def _pump(self, done: Callable[[], bool], patience: float) -> bool:
        """Read on until `done`, for at most `patience` seconds; whether it is."""
        end = time.monotonic() + patience
        while not done():
            if time.monotonic() >= end:
                return False
            self._read(_POLL_S)
            processes.reap_orphans(self._process.pid if self._process.returncode is None else 0)
        return True

    def _below(self) -> list[int]:
        return processes.descendants(os.getpid(), self._own)


class _Stopping:
    """The steps that end a process group: a stack dump, SIGTERM, SIGKILL, giving up."""

    def __init__(self, leader: int, grace: float, dump: bool) -> None:
        self._leader = leader
        self._grace = grace
        self._steps = [self._terminate, self._kill, self._give_up]
        if dump:
            self._steps.insert(0, self._dump)
        self.next_step = time.monotonic()
        self.given_up = False

    def advance(self, below: Callable[[], List[int]]) -> None:
        """Take the next step if it is time; `below` lists the stage's processes."""
        if self._steps and time.monotonic() >= self.next_step:
            self.next_step = time.monotonic() + self._steps.pop(0)(below())

    def _dump(self, below: list[int]) -> float:
        return _STACK_DUMP_S if processes.dump_stacks(below) else 0.0

    def _terminate(self, below: list[int]) -> float:
        processes.send_to_group(signal.SIGTERM, self._leader)
        return self._grace

    def _kill(self, below: list[int]) -> float:
        processes.send_to_group(signal.SIGKILL, self._leader)
        processes.send(signal.SIGKILL, below)
        return _KILL_S

    def _give_up(self, below: list[int]) -> float:
        self.given_up = True
        return _KILL_S


def _described(pids: List[int]) -> List[Dict[str, object]]:
    """What is recorded of processes that are to be ended; `gpu_mib` of those that hold memory of a GPU."""
    held = memory_of(pids)
    return [{**processes.describe(pid), **({"gpu_mib": held[pid]} if pid in held else {})} for pid in pids]


def _as_stage() -> Callable[[], None]:
    """What the new process does before its exec: it ends with the agent (it carries no mark yet by which the reaper
    would find it), dumps no core into the tree, and is the first to go when memory runs out, not the agent."""
    end_with_agent = processes.ending_with_parent()

    def prepare() -> None:
        end_with_agent()
        umask.give_back()
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        try:
            with open("/proc/self/oom_score_adj", "w") as f:
                f.write("500")
        except OSError:
            return

    return prepare


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
