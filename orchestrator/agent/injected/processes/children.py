"""The exit codes of the processes that a Python starts: who looked at those that are not 0.

Two ask. A test's AssertionError in a child is lost unless somebody may have seen it, in the child's output too. Outside
of tests, of a child that code of the tree has started, something has to depend on the exit code: the agent is told of
those of which nothing does (`{"child": COMMAND, "how": "child", ...}`), or nothing that 0 would change (`as 0`), and of
all for which somebody answers (`{"handled": PID}`), as libraries do for theirs (`{"handled": PID, "by": LIBRARY}`; who
has called them may drop what they make of it, or not: `{"answered": PID}`): a child that fails tells of itself
(`ends`), however it was started.
"""

from __future__ import annotations

import atexit
import os
import sys
from _weakref import ref  # `weakref` has more than is needed
from os import getpid
from sys import _getframe  # bound here, as in `hooks`

from ..files import COMMAND, STDIN, place_of, unfiled
from ..frames import drops_result, is_of, outside, package
from ..hooks import Attribute, caller, replace, watch
from ..stage import runs_pytest, test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from ..checks.records import Checks

_CHILD = "_nsa_pod_child"
_BY_SYSTEM = "NSA_POD_BY_SYSTEM"
"""For a shell of `os.system`, which does not say which process that was: whoever called it answers for it."""
_SIGPIPE = 13
# Of a process that was told to end: by SIGINT, SIGKILL or SIGTERM, or as a program or a shell says that it was.
_ENDED = (-2, -9, -15, 130, 137, 143)
_GIVES_THEM = "torch.multiprocessing.spawn"  # with join=False to its caller, who has to join them
_HANDING_ON = ("call", "close")
_STARTING = ("subprocess", "os", "pty", "asyncio", "threading", "concurrent")


class _Child:
    """A process that code of the tree has started, by `command`, in a line of `file`."""

    def __init__(self, command: object, frame: FrameType | None, process: Any = None) -> None:
        self.command = command
        self.file = COMMAND if frame is None else frame.f_code.co_filename
        self.line = 0 if frame is None else frame.f_lineno
        self._process: Any = None if process is None else ref(process)
        self.pid = 0 if process is None else process.pid
        self.code = 0
        self.lost: str | None = "child"
        """How its code is lost: nobody looks at it, or who does takes it for 0 (`as 0`), if no word of it decides."""
        self.words_decide = False

    @property
    def place(self) -> tuple[object, str, int]:
        return str(self.command), self.file, self.line

    def look_again(self) -> None:
        """Whether it has ended, if nobody has waited for it."""
        process = self._process and self._process()
        if process is not None and process.__dict__.get("returncode") is None:
            process._internal_poll()


class Children:
    """Watches `subprocess`, `asyncio`, `multiprocessing`, and what of `os` starts and awaits processes."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        # Those that failed, and those of tests, below which something may have, by their arguments, which is how a
        # CompletedProcess knows them: ids, and what is told.
        self._ended: dict[int, tuple[object, list[tuple[int, _Child | None]]]] = {}
        self._children: dict[int, _Child] = {}
        self._by_library: dict[str, list[int]] = {}  # processes of multiprocessing that a library has started
        self._unknown: set[int] = set()  # processes of which the system did not say how they ended
        self._kills = False  # whether this process itself ends others
        self._said: tuple[int, str] | None = None  # which process it was of which test that starts others
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "subprocess": self._watch_subprocess,
            "asyncio.subprocess": self._watch_asyncio,
            "multiprocessing.process": self._watch_processes,
        }

    def start(self) -> None:
        """Watch what every Python has."""
        for name in ("waitpid", "wait", "wait3", "wait4"):
            watch(os, name, after=self._note_waited, failed=self._cannot_wait)
        watch(os, "waitid", after=self._note_waitid)
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp"):
            watch(os, name, before=self._say_which_test, after=self._note_forked)
        replace(os, "system", self._calling)
        for name in ("kill", "killpg"):
            watch(os, name, before=self._note_killed)
        os.register_at_fork(after_in_child=self._children.clear)
        atexit.register(self._tell)

    def _watch_subprocess(self, subprocess: Any) -> None:
        popen, completed = subprocess.Popen, subprocess.CompletedProcess
        replace(popen, "__init__", self._starting)
        for name in ("wait", "poll"):
            watch(popen, name, after=self._note_ended)
        watch(popen, "send_signal", before=lambda frame, process, *_, **__: self._note_killed(frame, process.pid))
        popen.returncode = Attribute("returncode", self._look, self._note_code)
        completed.returncode = Attribute("returncode", self._look_at_completed)
        completed.stderr = Attribute("stderr", self._look_at_error)
        completed.stdout = Attribute("stdout", self._look_at_output)
        watch(subprocess.CalledProcessError, "__init__", after=self._note_error)
        watch(subprocess, "getstatusoutput", after=self._note_status)

    def _note_error(
        self, frame: FrameType | None, made: None, error: Any, returncode: Any, cmd: Any, *_: Any, **__: Any
    ) -> None:
        while frame is not None and is_of(frame, "subprocess") and frame.f_code.co_name != "getstatusoutput":
            frame = frame.f_back
        if frame is not None and not is_of(frame, "subprocess") and not self.drops(frame, type(error)):
            self._look_at_command(cmd)

    def _note_status(self, frame: FrameType, result: Any, cmd: Any, *_: Any, **__: Any) -> None:
        if result[0] and not is_of(frame, "subprocess") and self._is_used(frame, called=True, part=0):
            self._look_at_command(cmd)

    def drops(self, frame: FrameType, kind: type) -> bool:
        """Whether an exception of this kind that comes up to `frame` is caught where nothing depends on it."""
        if not self.is_ours(frame):
            return False
        from ..source.caught import drops_error

        return _if_possible(lambda: drops_error(frame, [base.__name__ for base in kind.__mro__]), otherwise=False)

    def uses_result(self, frame: FrameType) -> bool:
        """Whether something depends on what the call returns that `frame` is in the midst of, once it is awaited; also
        in a test.
        """
        from ..source.uses import is_used

        return _if_possible(lambda: is_used(frame), otherwise=True)

    def _is_used(self, frame: FrameType | None, **how: Any) -> bool:
        if frame is None:
            return False
        if not self.is_ours(frame):
            return not (how.get("called") and drops_result(frame))
        from ..source.uses import is_used

        return _if_possible(lambda: is_used(frame, **how), otherwise=True)

    def _starting(self, init: Callable[..., None]) -> Callable[..., None]:
        def __init__(process: Any, *args: Any, **kwargs: Any) -> None:
            frame = outside(_getframe(1), *_STARTING)
            ours = self.is_ours(frame)
            if ours and kwargs.get("shell") and kwargs.get("executable") is None:
                kwargs["executable"] = _recorded_shell()
            self._say_which_test()
            init(process, *args, **kwargs)
            if ours:
                child = _Child(process.args, frame, process)
                process.__dict__[_CHILD] = self._children[id(child)] = child
            else:
                self._handle(process.pid, by=frame)

        return __init__

    def _note_forked(self, frame: FrameType, made: Any, *_: Any, **__: Any) -> None:
        pid = made[0] if isinstance(made, tuple) else made
        starter = outside(frame, *_STARTING)
        # Of those of multiprocessing, who has started the process decides.
        if pid and not (starter and is_of(starter, "multiprocessing")) and not self.is_ours(starter):
            self._handle(pid, by=starter)

    def _say_which_test(self, *_: Any, **__: Any) -> None:
        """For a process that is about to start, and may be given environment variables that do not."""
        test = test_around() or self._checks.now.test
        if test is not None and self._said != (getpid(), test):
            self._said = getpid(), test
            self._checks.notes.add(starts=getpid(), inside=test)

    def is_ours(self, frame: FrameType | None) -> bool:
        """Whether code of the tree, or what Python itself was given, runs outside of tests: these judge themselves.

        Without a frame it is a thread's own function, as `Thread(target=subprocess.run)` has one.
        """
        if frame is None or is_in_test(frame):
            return not is_in_test(frame)
        file = frame.f_code.co_filename
        if file in (COMMAND, STDIN, *unfiled):
            return frame.f_globals.get("__name__") == "__main__"
        return os.path.abspath(file).startswith(self._checks.tree)

    def _handle(self, pid: int, by: FrameType | None = None) -> None:
        """Say that somebody answers for the end of a process: `by` the library that has started it."""
        if test_around() is None:
            library = f', "by": "{package(by)}"' if by is not None else ""
            self._checks.notes.write(f'{{"handled": {pid}{library}}}')

    def _note_code(self, process: Any, code: int | None) -> None:
        child = process.__dict__.get(_CHILD)
        if child is not None and code is not None and not (code == 0 and child.pid in self._unknown):
            child.code = code
            if not code:  # and so it has when it was tried before
                same = [key for key, other in self._children.items() if other.place == child.place]
                for key in same:
                    other = self._children[key]
                    if other is child or other.code:
                        self._handle(self._children.pop(key).pid)

    def _calling(self, system: Any) -> Any:
        def watched(command: Any) -> Any:
            frame = caller(_getframe(1))
            ours, shell = self.is_ours(frame), _recorded_shell()
            recorded = isinstance(command, str) and ours and shell is not None
            status = system(f"{_BY_SYSTEM}=1 exec {_quoted([shell, '-c', command])}" if recorded else command)
            lost: str | None = "child"
            if status and self._is_used(frame, called=True):
                self._checks.looked_at.add(getpid())  # it does not say which process it was: this one's, at any rate
                lost = self._lost(frame, status)
            if status and ours:
                child = _Child(command, frame)
                child.code, child.lost = status >> 8 or -(status & 127), lost
                self._children[id(child)] = child
            return status

        return watched

    def _note_killed(self, frame: FrameType, pid: int, *_: Any) -> None:
        self._kills = True
        if pid > 0:
            self._handle(pid)
        for child in self._children.values():
            if child.pid == pid:
                child.lost = None

    def _note_ended(self, frame: FrameType | None, code: int | None, process: Any, *_: Any, **__: Any) -> None:
        if code is None or not (code or is_in_test(frame)):
            return
        child = process.__dict__.get(_CHILD)
        ended = (process.pid, child)
        same = self._ended.setdefault(id(process.args), (process.args, []))[1]
        if ended not in same:
            same.append(ended)
        if not code:
            return
        if child is None and self._is_answered(frame):
            self._checks.notes.write(f'{{"answered": {process.pid}}}')
        while frame is not None and is_of(frame, "subprocess", "os") and frame.f_code.co_name in _HANDING_ON:
            frame = frame.f_back
        inside = frame is None or is_of(frame, "subprocess", "asyncio")
        if frame is not None and not inside and self._is_used(frame, called=True):
            self._note_look(process.pid, child, self._lost(frame, code))

    def _is_answered(self, frame: FrameType | None) -> bool:
        """Whether code of the tree makes something of what a library returns that it has called, and that waits."""
        while frame is not None and not os.path.abspath(frame.f_code.co_filename).startswith(self._checks.tree):
            frame = frame.f_back
        return frame is not None and self._is_used(frame, called=True)

    def _note_waited(self, frame: FrameType, found: Any, *_: Any, **__: Any) -> None:
        self._note_wait(frame, found[0], 1, found[1])

    def _cannot_wait(self, frame: FrameType, error: BaseException, pid: int = 0, *_: Any, **__: Any) -> None:
        """It was waited for in another place, or SIGCHLD is ignored: `subprocess` then takes its code for 0."""
        if isinstance(error, ChildProcessError):
            self._unknown.add(pid)

    def _note_waitid(self, frame: FrameType, found: Any, *_: Any) -> None:
        if found is not None:  # none has ended
            self._note_wait(frame, found.si_pid, None, found.si_status)

    def _note_wait(self, frame: FrameType, pid: int, part: int | None, status: int) -> None:
        """A process has ended; `part` of the tuple that the caller gets is a status, which tells of a signal."""
        if not status or is_of(frame, "subprocess", "multiprocessing", "asyncio"):
            return
        called = outside(frame, "os", "pty")  # whose `spawn` returns the status alone
        if called is not None and self._is_used(called, called=True, part=part if called is frame else None):
            self._note_look(pid, None)
        elif called is not None and self.is_ours(called) and part and os.WIFSIGNALED(status):
            self._children[-pid] = _forked(called, -os.WTERMSIG(status))  # it cannot tell of itself

    def _watch_asyncio(self, asyncio: Any) -> None:
        replace(asyncio.Process, "wait", self._awaiting)
        watch(asyncio.Process, "returncode", after=self._note_asked)

    def _awaiting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        async def watched(process: Any) -> Any:
            code = await wait(process)
            frame = _getframe(1)
            if frame.f_code.co_name != "communicate":
                self._note_asked(frame, code, process)
            return code

        return watched

    def _note_asked(self, frame: FrameType, code: int | None, process: Any) -> None:
        if code and self._is_used(frame):
            self._look_at_process(process._transport.get_extra_info("subprocess"), self._lost(frame, code))

    def _watch_processes(self, process: Any) -> None:
        """Of multiprocessing: whoever starts a process has to ask for its exit code."""
        watch(process.BaseProcess, "start", after=self._note_started)
        watch(process.BaseProcess, "exitcode", after=self._look_at_exitcode)

    def _note_started(self, frame: FrameType, made: None, process: Any) -> None:
        if not self.is_ours(frame):
            if frame.f_globals.get("__name__") != _GIVES_THEM or not self.is_ours(outside(frame, "torch")):
                self._handle(process.pid)
            self._by_library.setdefault(package(frame), []).append(process.pid)

    def _look_at_exitcode(self, frame: FrameType, code: int | None, process: Any) -> None:
        if code and not is_of(frame, "multiprocessing") and self._is_used(frame):
            lost = self._lost(frame, code)
            if id(process) not in self._children and lost:
                self._children[id(process)] = _forked(frame, code)
            for pid in (process.pid, *self._by_library.get(package(frame), ())):  # who asks one answers for all
                self._note_look(pid, self._children.get(id(process)), lost)

    def _note_look(self, pid: int, child: _Child | None, lost: str | None = None) -> None:
        self._checks.looked_at.add(pid)
        self._handle(pid)
        if child is not None and child.lost:
            child.lost = lost

    def _lost(self, frame: FrameType | None, code: int) -> str | None:
        """How a code is lost that `frame` reads, and on which something depends."""
        if frame is None or not self.is_ours(frame):
            return None
        from ..source.uses import takes_for_0

        return "as 0" if _if_possible(lambda: takes_for_0(frame, code, self._checks.tree), otherwise=False) else None

    def _look(self, frame: FrameType, process: Any, code: int | None) -> None:
        if code and not is_of(frame, "subprocess", "asyncio") and self._is_used(frame):
            self._look_at_process(process, self._lost(frame, code))

    def _look_at_process(self, process: Any, lost: str | None = None) -> None:
        if process is not None:
            self._note_look(process.pid, process.__dict__.get(_CHILD), lost)

    def _look_at_completed(self, frame: FrameType, completed: Any, code: int) -> None:
        if code and not is_of(frame, "subprocess") and self._is_used(frame):  # its error tells of itself
            self._look_at_command(completed.args, self._lost(frame, code))

    def _look_at_error(self, frame: FrameType, completed: Any, text: object) -> None:
        """Which tells of an AssertionError, and not of an exit code."""
        if is_of(frame, "subprocess"):
            return
        for pid, child in self._started_by(completed.args):
            if text:
                self._checks.looked_at.add(pid)
            if child is not None and self.is_ours(frame):
                child.words_decide |= self._decides(frame)

    def _decides(self, frame: FrameType) -> bool:
        from ..source.uses import decides

        return _if_possible(lambda: decides(frame), otherwise=False)

    def _look_at_output(self, frame: FrameType, completed: Any, text: object) -> None:
        """Which does not hold the error, if that has a place of its own."""
        if not completed.__dict__.get("stderr"):
            self._look_at_error(frame, completed, text)

    def _look_at_command(self, command: object, lost: str | None = None) -> None:
        for pid, child in self._started_by(command):
            self._note_look(pid, child, lost)

    def _started_by(self, command: object) -> list[tuple[int, _Child | None]]:
        return self._ended.get(id(command), (command, []))[1]

    def _tell(self) -> None:
        """At the end of the process: of the exit codes that nobody looked at, or that were taken for 0."""
        meant = (0, -_SIGPIPE, *(_ENDED if self._kills else ()))
        for child in list(self._children.values()):
            child.look_again()
            if child.lost and child.code not in meant and not (child.lost == "as 0" and child.words_decide):
                code = child.code if child.code > 0 else 128 - child.code
                place = place_of(child.file, child.line)
                self._checks.notes.add(child=_quoted(child.command), code=code, pid=child.pid, how=child.lost, **place)


def _forked(frame: FrameType, code: int) -> _Child:
    """A process of this program, that it knows by no command."""
    child = _Child([sys.executable, *sys.argv[:1]], frame)
    child.code = code
    return child


def _if_possible(question: Callable[[], bool], *, otherwise: bool) -> bool:
    """A program must not fail because its text is of a kind that was not foreseen."""
    try:
        return question()
    except Exception:
        return otherwise


def is_in_test(frame: FrameType | None) -> bool:
    """Whether tests run here, or in a process above."""
    if runs_pytest() or test_around() is not None:
        return True
    while frame is not None:
        if is_of(frame, "unittest", "nose", "nose2"):
            return True
        frame = frame.f_back
    return False


def _recorded_shell() -> str | None:
    """A `sh` that writes down what it loses, where the stage has one."""
    recorder = os.environ.get("BASH_ENV", "") if "NSA_POD_SHELL_RECORD" in os.environ else ""
    shell = os.path.join(os.path.dirname(recorder), "bin", "sh")
    return shell if recorder and os.access(shell, os.X_OK) else None


def _quoted(command: Any) -> str:
    """A command as a shell's line."""
    import shlex

    if isinstance(command, (str, bytes, os.PathLike)):
        return os.fsdecode(command)
    return " ".join(shlex.quote(os.fsdecode(word)) for word in command)
