"""The exit codes of the processes that a Python starts: who looked at those that are not 0.

Two ask. A test's AssertionError in a child is lost unless somebody may have seen it, in the child's output too. Outside
of tests, of a child that code of the tree has started, something has to depend on the exit code: the agent is told of
those of which nothing does (`{"child": COMMAND, ...}`), and of all for which somebody answers (`{"handled": PID}`), as
libraries do for theirs: a child that fails tells of itself (`ends`), however it was started.
"""

from __future__ import annotations

import atexit
import os
import sys
from _weakref import ref  # `weakref` has more than is needed
from functools import wraps
from os import getpid
from sys import _getframe  # bound here, as in `lost`

from .frames import drops_result, is_of, outside
from .stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from .checks import Checks

_CHILD = "_nsa_pod_child"
_BY_SYSTEM = "NSA_POD_BY_SYSTEM"
"""For a shell of `os.system`, which does not say which process that was: whoever called it answers for it."""
_SIGPIPE = 13
# Of a process that was told to end: by SIGINT, SIGKILL or SIGTERM, or as a program or a shell says that it was.
_ENDED = (-2, -9, -15, 130, 137, 143)
_HANDING_ON = ("call", "close")
_STARTING = ("subprocess", "os", "pty", "asyncio", "threading", "concurrent")


def put_into_os(name: str, function: Any) -> None:
    """Put `function` into the place of one of os: found there by its name, as what pickles it for a pool does."""
    function.__module__, function.__qualname__ = "os", name
    setattr(os, name, function)


class _Child:
    """A process that code of the tree has started, by `command`, in a line of `file`."""

    def __init__(self, command: object, frame: FrameType | None, process: Any = None) -> None:
        self.command = command
        self.file = "<string>" if frame is None else frame.f_code.co_filename
        self.line = 0 if frame is None else frame.f_lineno
        self._process: Any = None if process is None else ref(process)
        self.pid = 0 if process is None else process.pid
        self.code = 0
        self.asked = False

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
        # Those that failed, by their arguments, which is how a CompletedProcess knows them: ids, and what is told.
        self._failed: dict[int, tuple[object, list[tuple[int, _Child | None]]]] = {}
        self._children: dict[int, _Child] = {}
        self._by_library: dict[str, list[int]] = {}  # processes of multiprocessing that a library has started
        self._kills = False  # whether this process itself ends others
        self._said: tuple[int, str] | None = None  # which process it was of which test that starts others
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "subprocess": self._watch_subprocess,
            "asyncio.subprocess": self._watch_asyncio,
        }

    def start(self) -> None:
        """Watch what every Python has."""
        for name, part in (("waitpid", 1), ("wait", 1), ("wait3", 1), ("wait4", 1), ("waitid", None)):
            if hasattr(os, name):
                put_into_os(name, self._waiting(getattr(os, name), part))
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp"):
            if hasattr(os, name):
                put_into_os(name, self._forking(getattr(os, name)))
        put_into_os("system", self._calling(os.system))
        for name in ("kill", "killpg"):
            put_into_os(name, self._killing(getattr(os, name)))
        os.register_at_fork(after_in_child=self._children.clear)
        atexit.register(self._tell)

    def _watch_subprocess(self, subprocess: Any) -> None:
        popen, completed = subprocess.Popen, subprocess.CompletedProcess
        popen.__init__ = self._starting(popen.__init__)
        popen.wait = self._ending(popen.wait)
        popen.poll = self._ending(popen.poll)
        popen.send_signal = self._killing(popen.send_signal)
        popen.returncode = _Told("returncode", lambda process, frame: self._look(process, frame), self._note_code)
        completed.returncode = _Told("returncode", self._look_at_completed)
        completed.stderr = _Told("stderr", self._look_at_error)
        completed.stdout = _Told("stdout", self._look_at_output)
        init = subprocess.CalledProcessError.__init__

        def __init__(error: Any, returncode: Any, cmd: Any, *args: Any, **kwargs: Any) -> None:
            init(error, returncode, cmd, *args, **kwargs)
            frame: FrameType | None = _getframe(1)
            while frame is not None and is_of(frame, "subprocess") and frame.f_code.co_name != "getstatusoutput":
                frame = frame.f_back
            if frame is not None and not is_of(frame, "subprocess") and not self.drops(frame, type(error)):
                self._look_at_command(cmd)

        subprocess.CalledProcessError.__init__ = __init__
        subprocess.getstatusoutput = self._telling_status(subprocess.getstatusoutput)

    def drops(self, frame: FrameType, kind: type) -> bool:
        """Whether an exception of this kind that comes up to `frame` is caught where nothing depends on it."""
        if not self.is_ours(frame):
            return False
        from .uses import drops_error

        return _if_possible(lambda: drops_error(frame, [base.__name__ for base in kind.__mro__]), otherwise=False)

    def _telling_status(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def getstatusoutput(cmd: Any, *args: Any, **kwargs: Any) -> Any:
            result = function(cmd, *args, **kwargs)
            frame = _getframe(1)
            if result[0] and not is_of(frame, "subprocess") and self._is_used(frame, called=True, part=0):
                self._look_at_command(cmd)
            return result

        return getstatusoutput

    def uses_result(self, frame: FrameType) -> bool:
        """Whether something depends on what the call returns that `frame` is in the midst of, once it is awaited; also
        in a test.
        """
        from .uses import is_used

        return _if_possible(lambda: is_used(frame), otherwise=True)

    def _is_used(self, frame: FrameType, **how: Any) -> bool:
        if not self.is_ours(frame):
            return not (how.get("called") and drops_result(frame))
        from .uses import is_used

        return _if_possible(lambda: is_used(frame, **how), otherwise=True)

    def _starting(self, init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
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
                self._handle(process.pid)

        return __init__

    def _forking(self, fork: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(fork)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._say_which_test()
            made = fork(*args, **kwargs)
            pid = made[0] if isinstance(made, tuple) else made
            frame = outside(_getframe(1), *_STARTING)
            # Of those of multiprocessing, who has started the process decides.
            if pid and not (frame and is_of(frame, "multiprocessing")) and not self.is_ours(frame):
                self._handle(pid)
            return made

        return watched

    def _say_which_test(self) -> None:
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
        if file in ("<string>", "<stdin>"):
            return frame.f_globals.get("__name__") == "__main__"
        return os.path.abspath(file).startswith(self._checks.tree)

    def _handle(self, pid: int) -> None:
        """Say that somebody answers for the end of a process."""
        if test_around() is None:
            self._checks.notes.write(f'{{"handled": {pid}}}')

    def _note_code(self, process: Any, code: int | None) -> None:
        child = process.__dict__.get(_CHILD)
        if child is not None and code is not None:
            child.code = code
            if not code:  # and so it has when it was tried before
                same = [key for key, other in self._children.items() if other.place == child.place]
                for key in same:
                    other = self._children[key]
                    if other is child or other.code:
                        self._handle(self._children.pop(key).pid)

    def _calling(self, system: Any) -> Any:
        @wraps(system)
        def watched(command: Any) -> Any:
            frame = _getframe(1)
            ours, shell = self.is_ours(frame), _recorded_shell()
            recorded = isinstance(command, str) and ours and shell is not None
            status = system(f"{_BY_SYSTEM}=1 exec {_quoted([shell, '-c', command])}" if recorded else command)
            if status and self._is_used(frame, called=True):
                self._checks.looked_at.add(getpid())  # it does not say which process it was: this one's, at any rate
            elif status and ours:
                child = _Child(command, frame)
                child.code = status >> 8 or -(status & 127)
                self._children[id(child)] = child
            return status

        return watched

    def _killing(self, kill: Callable[..., None]) -> Callable[..., None]:
        @wraps(kill)
        def watched(process: Any, *args: Any, **kwargs: Any) -> None:
            self._kills = True
            pid = process if isinstance(process, int) else process.pid
            if pid > 0:
                self._handle(pid)
            for child in self._children.values():
                child.asked |= child.pid == pid
            kill(process, *args, **kwargs)

        return watched

    def _ending(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def ask(process: Any, *args: Any, **kwargs: Any) -> Any:
            code = method(process, *args, **kwargs)
            if code:
                child = process.__dict__.get(_CHILD)
                failed = (process.pid, child)
                _, same = self._failed.setdefault(id(process.args), (process.args, []))
                if failed not in same:
                    same.append(failed)
                frame: FrameType | None = _getframe(1)
                while frame is not None and is_of(frame, "subprocess", "os") and frame.f_code.co_name in _HANDING_ON:
                    frame = frame.f_back
                inside = frame is None or is_of(frame, "subprocess", "asyncio")
                if frame is not None and not inside and self._is_used(frame, called=True):
                    self._note_look(process.pid, child)
            return code

        ask.__doc__ = method.__doc__
        return ask

    def _waiting(self, wait: Callable[..., Any], part: int | None) -> Callable[..., Any]:
        @wraps(wait)
        def ask(*args: Any) -> Any:
            found = wait(*args)
            if not found:
                return found
            pid, status = (found[0], found[part]) if part else (found.si_pid, found.si_status)
            if status:
                self._note_waited(pid, _getframe(1), part, status if part else 0)
            return found

        return ask

    def _note_waited(self, pid: int, frame: FrameType, part: int | None, status: int) -> None:
        if is_of(frame, "subprocess", "multiprocessing", "asyncio"):
            return
        called = outside(frame, "os", "pty")  # whose `spawn` returns the status alone
        if called is not None and self._is_used(called, called=True, part=part if called is frame else None):
            self._note_look(pid, None)
        elif called is not None and self.is_ours(called) and os.WIFSIGNALED(status):  # it cannot tell of itself
            child = _Child([sys.executable, *sys.argv[:1]], called)  # as it was forked
            child.code = -os.WTERMSIG(status)
            self._children[id(child)] = child

    def _watch_asyncio(self, asyncio: Any) -> None:
        process, children = asyncio.Process, self

        def popen(self: Any) -> Any:
            return self._transport.get_extra_info("subprocess")

        wait, returncode = process.wait, process.returncode

        @wraps(wait)
        async def watched(self: Any) -> Any:
            code = await wait(self)
            frame = _getframe(1)
            if code and frame.f_code.co_name != "communicate" and children._is_used(frame):
                children._look_at_process(popen(self))
            return code

        def asked(self: Any) -> Any:
            code = returncode.fget(self)
            if code and children._is_used(_getframe(1)):
                children._look_at_process(popen(self))
            return code

        process.wait, process.returncode = watched, property(asked, doc=returncode.__doc__)

    def watch_processes(self, process: Any) -> None:
        """Of multiprocessing: whoever starts a process has to ask for its exit code."""
        start, exitcode, children = process.BaseProcess.start, process.BaseProcess.exitcode, self

        @wraps(start)
        def watched(self: Any) -> None:
            start(self)
            frame = _getframe(1)
            if not children.is_ours(frame):
                children._handle(self.pid)
                children._by_library.setdefault(_package(frame), []).append(self.pid)

        def asked(self: Any) -> Any:
            code = exitcode.fget(self)
            frame = _getframe(1)
            if code and not is_of(frame, "multiprocessing") and children._is_used(frame):
                for pid in (self.pid, *children._by_library.get(_package(frame), ())):  # who asks one answers for all
                    children._note_look(pid, None)
            return code

        process.BaseProcess.start = watched
        process.BaseProcess.exitcode = property(asked, doc=exitcode.__doc__)

    def _note_look(self, pid: int, child: _Child | None) -> None:
        self._checks.looked_at.add(pid)
        self._handle(pid)
        if child is not None:
            child.asked = True

    def _look(self, process: Any, frame: FrameType) -> None:
        if not is_of(frame, "subprocess", "asyncio") and self._is_used(frame):
            self._look_at_process(process)

    def _look_at_process(self, process: Any) -> None:
        if process is not None:
            self._note_look(process.pid, process.__dict__.get(_CHILD))

    def _look_at_completed(self, completed: Any, frame: FrameType) -> None:
        if not is_of(frame, "subprocess") and self._is_used(frame):  # its error tells of itself
            self._look_at_command(completed.args)

    def _look_at_error(self, completed: Any, frame: FrameType) -> None:
        """Which tells of an AssertionError, and not of an exit code."""
        if not is_of(frame, "subprocess"):
            self._checks.looked_at.update(pid for pid, _ in self._started_by(completed.args))

    def _look_at_output(self, completed: Any, frame: FrameType) -> None:
        """Which does not hold the error, if that has a place of its own."""
        if not completed.__dict__.get("stderr"):
            self._look_at_error(completed, frame)

    def _look_at_command(self, command: object) -> None:
        for pid, child in self._started_by(command):
            self._note_look(pid, child)

    def _started_by(self, command: object) -> list[tuple[int, _Child | None]]:
        return self._failed.get(id(command), (command, []))[1]

    def _tell(self) -> None:
        """At the end of the process: of the exit codes that nobody looked at."""
        meant = (0, -_SIGPIPE, *(_ENDED if self._kills else ()))
        for child in list(self._children.values()):
            child.look_again()
            if not child.asked and child.code not in meant:
                code = child.code if child.code > 0 else 128 - child.code
                place = {"file": os.path.abspath(child.file), "line": child.line}
                if child.file in ("<string>", "<stdin>"):
                    place = {"file": "", "line": 0}
                self._checks.notes.add(child=_quoted(child.command), code=code, pid=child.pid, call=False, **place)


class _Told:
    """An attribute that tells when it is set, and with the frame that asks when it is read and is not 0 or empty."""

    def __init__(
        self, name: str, tell: Callable[[Any, FrameType], None], note: Callable[[Any, Any], None] | None = None
    ) -> None:
        self._name = name
        self._tell = tell
        self._note = note

    def __get__(self, holder: Any, kind: type) -> Any:
        if holder is None:
            return self
        try:
            value = holder.__dict__[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        if value:
            self._tell(holder, _getframe(1))
        return value

    def __set__(self, holder: Any, value: Any) -> None:
        holder.__dict__[self._name] = value
        if self._note is not None:
            self._note(holder, value)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _if_possible(question: Callable[[], bool], *, otherwise: bool) -> bool:
    """A program must not fail because its text is of a kind that was not foreseen."""
    try:
        return question()
    except Exception:
        return otherwise


def is_in_test(frame: FrameType | None) -> bool:
    """Whether tests run here, or in a process above."""
    if "_pytest.config" in sys.modules or test_around() is not None:
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
