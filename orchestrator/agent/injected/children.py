"""The exit codes of the processes that a Python starts: who looked at those that are not 0.

Two ask. A test's AssertionError in a child is lost unless somebody may have seen it, in the child's output too. Outside
of tests, of a child that code of the tree has started, the exit code itself has to be looked at: the agent is told of
those that were not, and knows which programs count.
"""

from __future__ import annotations

import atexit
import os
import sys
from _weakref import ref  # `weakref` has more than is needed
from functools import wraps
from os import getpid
from sys import _getframe  # bound here, as in `lost`

from .frames import drops_result, is_of
from .stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from .checks import Checks

_CHILD = "_nsa_pod_child"
_SIGPIPE = 13
# Of a process that was told to end: by SIGINT, SIGKILL or SIGTERM, or as a program or a shell says that it was.
_ENDED = (-2, -9, -15, 130, 137, 143)


class _Child:
    """A process that code of the tree has started, by `command`, in a line of `file`."""

    def __init__(self, command: object, frame: FrameType, process: Any = None) -> None:
        self.command = command
        self.file = frame.f_code.co_filename
        self.line = frame.f_lineno
        self._process: Any = None if process is None else ref(process)
        self.code = 0
        self.asked = False

    def look_again(self) -> None:
        """Whether it has ended, if nobody has waited for it."""
        process = self._process and self._process()
        if process is not None and process.__dict__.get("returncode") is None:
            process._internal_poll()


class Children:
    """Watches `subprocess` and what of `os` starts and awaits processes."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        # Those that failed, by their arguments, which is how a CompletedProcess knows them: ids, and what is told.
        self._failed: dict[int, tuple[object, list[tuple[int, _Child | None]]]] = {}
        self._children: dict[int, _Child] = {}
        self._kills = False  # whether this process itself ends others
        self.after_import: dict[str, Callable[[ModuleType], None]] = {"subprocess": self._watch_subprocess}

    def start(self) -> None:
        """Watch what every Python has."""
        os.waitpid = self._waiting(os.waitpid)
        os.system = self._calling(os.system)
        os.kill, os.killpg = self._killing(os.kill), self._killing(os.killpg)
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
            self._look_at_command(cmd)

        subprocess.CalledProcessError.__init__ = __init__

    def _starting(self, init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def __init__(process: Any, *args: Any, **kwargs: Any) -> None:
            frame: FrameType | None = _getframe(1)
            while frame is not None and is_of(frame, "subprocess", "os"):
                frame = frame.f_back
            ours = frame is not None and self._is_ours(frame)
            if ours and kwargs.get("shell") and kwargs.get("executable") is None:
                kwargs["executable"] = _recorded_shell()
            init(process, *args, **kwargs)
            if ours and frame is not None:
                child = _Child(process.args, frame, process)
                process.__dict__[_CHILD] = self._children[id(child)] = child

        return __init__

    def _is_ours(self, frame: FrameType) -> bool:
        """Whether code of the tree, or what Python itself was given, runs outside of tests: these judge themselves."""
        if "_pytest.config" in sys.modules or test_around() is not None or _is_in_unittest(frame):
            return False
        file = frame.f_code.co_filename
        if file in ("<string>", "<stdin>"):
            return frame.f_globals.get("__name__") == "__main__"
        return os.path.abspath(file).startswith(self._checks.tree)

    def _note_code(self, process: Any, code: int | None) -> None:
        child = process.__dict__.get(_CHILD)
        if child is not None and code is not None:
            child.code = code
            if not code:
                self._children.pop(id(child), None)

    def _calling(self, system: Any) -> Any:
        @wraps(system)
        def watched(command: Any) -> Any:
            frame = _getframe(1)
            ours, shell = self._is_ours(frame), _recorded_shell()
            recorded = isinstance(command, str) and ours and shell is not None
            status = system(f"exec {_quoted([shell, '-c', command])}" if recorded else command)
            if status and not drops_result(frame):
                self._checks.looked_at.add(getpid())  # it does not say which process it was: this one's, at any rate
            elif status and ours:
                child = _Child(command, frame)
                child.code = status >> 8 or -(status & 127)
                self._children[id(child)] = child
            return status

        return watched

    def _killing(self, kill: Callable[..., None]) -> Callable[..., None]:
        @wraps(kill)
        def watched(*args: Any, **kwargs: Any) -> None:
            self._kills = True
            kill(*args, **kwargs)

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
                while frame is not None and is_of(frame, "subprocess") and frame.f_code.co_name == "call":
                    frame = frame.f_back
                if frame is not None and not is_of(frame, "subprocess") and not drops_result(frame):
                    self._note_look(process.pid, child)
            return code

        ask.__doc__ = method.__doc__
        return ask

    def _waiting(self, waitpid: Callable[..., Any]) -> Callable[..., Any]:
        def ask(pid: int, options: int) -> Any:
            found, status = waitpid(pid, options)
            frame = _getframe(1)
            if status and not is_of(frame, "subprocess", "multiprocessing") and not drops_result(frame):
                self._checks.looked_at.add(found)
            return found, status

        return ask

    def _note_look(self, pid: int, child: _Child | None) -> None:
        self._checks.looked_at.add(pid)
        if child is not None:
            child.asked = True

    def _look(self, process: Any, frame: FrameType) -> None:
        if not is_of(frame, "subprocess"):
            self._note_look(process.pid, process.__dict__.get(_CHILD))

    def _look_at_completed(self, completed: Any, frame: FrameType) -> None:
        if not is_of(frame, "subprocess") or frame.f_code.co_name == "check_returncode":
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
                self._checks.notes.add(child=_quoted(child.command), code=code, **place)


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


def _is_in_unittest(frame: FrameType | None) -> bool:
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
