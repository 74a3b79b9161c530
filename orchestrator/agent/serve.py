"""`serve`: the commands of one laptop over one connection, each in a process of its own.

One that crashes or hangs is one answer: the others, and those that come, do not notice.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, Callable, Dict, List, Optional

from orchestrator.shared import frames

_GRACE_S = 2.0
_PIECE = 1 << 16
# What a command that has ended can have left in its pipe.
_LEFT_IN_PIPE = 1 << 20
# What a command may go on to write when nobody listens any more: more than any answer's last words.
_UNHEARD = 1 << 20
# Loaded once, while the first question is on its way.
_PRELOADED = (
    "orchestrator.agent.env.commands",
    "orchestrator.agent.probe",
    "orchestrator.agent.runs",
    "orchestrator.agent.run.send",
    "orchestrator.shared.tree",
)

Main = Callable[[List[str]], int]


def serve(main: Main, outliving: Callable[[List[str]], bool]) -> int:
    """Answer on stdout what is asked on stdin until that ends; then let those end that nobody has to stop.

    Questions to this very agent are answered by `main` in a copy of this process, which has all it needs in memory;
    those whose work is `outliving` the connection, and other programs, get a program of their own.
    """
    come, go = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nothing, fd)
    os.close(nothing)
    for module in _PRELOADED:
        importlib.import_module(module)
    _Server(come, go, main, outliving).work()
    return 0


class _Command:
    """A command under way; `outputs` are its pipes by the kind of frame that they fill."""

    def __init__(self, number: int, pid: int, outputs: Dict[int, int], limit: Optional[float]) -> None:
        self.number, self.pid, self.outputs = number, pid, outputs
        self.end_at = None if limit is None else time.monotonic() + limit
        self.kill_at: Optional[float] = None
        self.timed_out = False
        self.unheard = 0
        # Without a limit it goes on for as long as somebody listens.
        self.is_stream = limit is None

    @property
    def alarm(self) -> Optional[float]:
        return self.end_at if self.kill_at is None else self.kill_at

    def stop(self) -> None:
        """SIGTERM to its group, and SIGKILL after the grace."""
        if self.kill_at is None:
            self.kill_at = time.monotonic() + _GRACE_S
            self._signal(signal.SIGTERM)

    def leave_none(self) -> None:
        """After its end, kill what of its group has outlived the order to stop."""
        if self.kill_at is not None:
            self._signal(signal.SIGKILL)

    def keep_limits(self) -> None:
        """Stop what takes longer than it may, or writes on and no broken pipe tells it that nobody listens."""
        now = time.monotonic()
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = now + _GRACE_S
            self._signal(signal.SIGKILL)
        elif self.kill_at is None and self.end_at is not None and now >= self.end_at:
            self.timed_out = True
            self.stop()
        elif self.unheard > _UNHEARD:
            self.stop()

    def _signal(self, sign: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, sign)


class _Server:
    def __init__(self, come: int, go: int, main: Main, outliving: Callable[[List[str]], bool]) -> None:
        self._come, self._go, self._main, self._outliving = come, go, main, outliving
        self._questions = frames.Frames(frames.QUESTION_LIMIT)
        self._commands: Dict[int, _Command] = {}
        self._is_heard = self._is_asked = True
        self._selector = selectors.PollSelector()  # it has no descriptor that a child would have to close
        self._bell, self._rope = os.pipe()
        for fd in (self._bell, self._rope):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._rope)
        self._selector.register(self._bell, selectors.EVENT_READ, self._reap)
        self._selector.register(come, selectors.EVENT_READ, self._listen)

    def work(self) -> None:
        while self._is_asked or self._commands:
            alarms = [command.alarm for command in self._commands.values() if command.alarm is not None]
            limit = max(0.0, min(alarms) - time.monotonic()) if alarms else None
            for key, _ in self._selector.select(limit):
                if self._selector.get_map().get(key.fileobj) == key:  # what came before it may have closed this one
                    key.data()
            for command in self._commands.values():
                command.keep_limits()

    def _listen(self) -> None:
        data = os.read(self._come, _PIECE)
        try:
            for asked in self._questions.feed(data):
                if asked.kind == frames.ASK:
                    self._begin(asked.number, *frames.read_question(asked.payload))
                elif asked.kind == frames.STOP and asked.number in self._commands:
                    self._commands[asked.number].stop()
        except (ValueError, KeyError, TypeError) as e:  # whatever this is, it is no laptop of ours
            print(f"serve: {e!r}", file=sys.stderr)
            data = b""
        if not data:
            self._is_asked = False
            self._selector.unregister(self._come)
            for command in self._commands.values():
                if command.is_stream:
                    command.stop()

    def _begin(self, number: int, asked: Dict[str, Any], given: bytes) -> None:
        argv = [str(word) for word in asked["argv"]]
        pipes = {frames.OUT: os.pipe(), frames.ERR: os.pipe()}
        source = _file_of(given)
        pid = os.fork()
        if pid == 0:
            self._become(argv, source, *(write for _, write in pipes.values()))
        os.close(source)
        for _, write in pipes.values():
            os.close(write)
        command = _Command(number, pid, {kind: read for kind, (read, _) in pipes.items()}, asked["limit"])
        self._commands[number] = command
        for kind, fd in command.outputs.items():
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, lambda kind=kind: self._pass_on(command, kind))

    def _pass_on(self, command: _Command, kind: int) -> int:
        """Send what a command has written since; how many bytes that was."""
        fd = command.outputs[kind]
        try:
            data = os.read(fd, _PIECE)
        except BlockingIOError:
            return 0
        if data:
            self._say(kind, command.number, data)
            if not self._is_heard:
                command.unheard += len(data)
        elif fd in self._selector.get_map():
            self._selector.unregister(fd)
        return len(data)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, _PIECE)
        for command in list(self._commands.values()):
            pid, status = os.waitpid(command.pid, os.WNOHANG)
            if pid:
                self._finish(command, status)

    def _finish(self, command: _Command, status: int) -> None:
        del self._commands[command.number]
        command.leave_none()
        for kind, fd in command.outputs.items():
            left = _LEFT_IN_PIPE  # a daemon may hold the pipe open, and write on
            while left > 0:
                passed = self._pass_on(command, kind)
                left = left - passed if passed else 0
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
            os.close(fd)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        self._say(frames.END, command.number, frames.TIMED_OUT if command.timed_out else b"%d" % code)

    def _say(self, kind: int, number: int, payload: bytes) -> None:
        rest = memoryview(frames.frame(kind, number, payload))
        try:
            while rest and self._is_heard:
                rest = rest[os.write(self._go, rest) :]
        except OSError:  # nobody listens any more
            self._is_heard = False

    def _become(self, argv: List[str], *streams: int) -> None:
        """In the child: answer the question, or become its program. Never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            for target, fd in enumerate(streams):
                os.dup2(fd, target)
            outputs = [fd for command in self._commands.values() for fd in command.outputs.values()]
            for fd in (self._come, self._go, self._bell, self._rope, *outputs):
                os.close(fd)
            if argv[1:3] == ["-I", "-c"] and argv[4:5] == [sys.argv[0]] and not self._outliving(argv[6:]):
                code = _answer(self._main, argv[6:])  # python -I -c CHECK AGENT SHA256 COMMAND...
            else:
                code = _run(argv)
        finally:
            os._exit(code)


def _answer(main: Main, argv: List[str]) -> int:
    """As a Python that is started with this agent would answer, down to its words where the agent is gone."""
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode, closefd=False) for fd, mode in enumerate("rww"))
    try:
        if not os.path.exists(sys.argv[0]):
            print(f"{sys.executable}: can't open file '{sys.argv[0]}'", file=sys.stderr)
            return 2
        return main(argv)
    except SystemExit as e:  # argparse
        return e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()


def _run(argv: List[str]) -> int:
    """Become another program; 127 if there is none, as in a shell."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as e:
        os.write(2, f"{argv[0]}: {'not found' if isinstance(e, FileNotFoundError) else e.strerror}".encode())
        return 127 if isinstance(e, FileNotFoundError) else 126


def _file_of(data: bytes) -> int:
    """A descriptor to read `data` from: in memory where that can be, for the disk may be full."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("input")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
