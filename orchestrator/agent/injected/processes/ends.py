"""How this Python ends, told by itself: what has started it may keep that to itself, and is perhaps not watched.

`{"ended": PID, "code": 3, "above": [[PID, NAME], ...], "command": ..., "asks": ..., "cut_short": ..., "hidden": ...}`
where the exit code is not 0. `above` are the processes up to the agent; a Python that only `asks` whether there is a
package, or a device, is one of `-c` that fails to import it, or does no more than to ask (`asks.py`), or one of `-m`
that asks for pip, which the stages' environments lack; one that is `cut_short` could not write to what had ended before
it; the code of one is `hidden` that returned 0 in the end, by `os._exit`, under a program that catches SystemExit, or
because it is a multiple of 256, of which the system keeps nothing (`sys.exit(os.system(...))`).
`{"well": PID}` where the exit code is 0. `{"under": PID, "shell": NAME}` at its start, below a shell that may not be
recorded. Nothing of what a test starts.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from os import getpid, getppid
from sys import _getframe, exc_info

from ..files import COMMAND, read
from ..frames import OWN, is_of, outside
from ..hooks import watch
from .ancestors import above, is_judged_by_test

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any, Callable, Iterator

    from ..stage import Config, Notes

_SHELLS = ("bash", "sh", "dash", "zsh", "ksh", "ksh93", "mksh", "fish", "csh", "tcsh", "ash", "busybox")
_GOES_ON = r"[;|\n]|(?<![&>])&(?![&>])"  # not `a && b`, nor `2>&1`
_INTERRUPTED = 130
_NO_FAILURES = (BrokenPipeError, EOFError, StopIteration)  # an end of what is read or written
_CUTS_OFF, _IN_ALARM, _PLACE = "_nsa_pod_cuts_off", "_nsa_pod_in_alarm", "_nsa_pod_place"
_RECORDED = "NSA_POD_SHELL"
"""The shell of this process, if it is recorded."""


class End:
    """The end of this process, and of those that are forked from it."""

    def __init__(self, config: Config, notes: Notes) -> None:
        self._notes = notes
        self._names = frozenset(config.all("name"))
        self._agent = int((config.all("agent") or ["0"])[0])
        roots = os.environ.get("NSA_POD_SHELL_ROOTS") or config.one("tree")
        self._folders = tuple(path + os.sep for path in roots.split(":"))
        self._code = self._inside = 0
        self._error: BaseException | None = None
        self._told = False

    def start(self) -> None:
        if is_judged_by_test():
            return
        self._look_at_shell()
        _watch_exits(self._exits)
        watch(sys, "excepthook", before=self._has_raised)
        watch(sys, "unraisablehook", before=self._cannot_raise)
        os.register_at_fork(after_in_child=self._begins_anew)
        atexit.register(self._leaves)

    def _has_raised(self, frame: object, kind: type, error: BaseException, traceback: TracebackType | None) -> None:
        if traceback is not None and is_of(traceback.tb_frame, "weakref"):  # of a finalizer, at the end
            self._drops(error)
        else:
            self._dies(error)

    def _cannot_raise(self, frame: object, unraisable: Any) -> None:
        if "atexit" in str(unraisable.err_msg or ""):
            self._drops(unraisable.exc_value)

    def leaves_by(self, code: int) -> None:
        """By `os._exit`, whatever has ended it before."""
        self._look_at_error()
        error = exc_info()[1]
        if not code and not self._code and error is not None:
            self._look_at_end_of(error)
        elif error is not None:
            code = _of_the_target(error, code)
        elif not code:
            self._doubt_alarm(_in_alarm(_above(_getframe(1))))
        if code & 0xFF:
            self._tell(code)
        else:
            self._tell(self._code or code, hidden=True)

    def _look_at_end_of(self, error: BaseException) -> None:
        """Of an exception that was on its way out, in a `finally`: it would have ended the program."""
        from ..source.uses import unwinds

        if unwinds(outside(_getframe(1))):
            if isinstance(error, SystemExit):
                self._exits(error.code)
            else:
                self._dies(error)

    def _doubt_alarm(self, place: tuple[str, int] | None) -> None:
        """That it ended in its handler of a signal that it has asked for: what it was about to do is cut off."""
        if place is None:
            return
        file, line = place
        if os.path.abspath(file).startswith(self._folders[0]):
            file = os.path.relpath(file, self._folders[0])
            self._notes.add(doubt=f"it ended with 0 in its handler of SIGALRM ({file} line {line})")

    def is_of_stage(self) -> bool:
        """Whether no other program than a shell has started this process."""
        parents = above(self._agent)[:1]
        return any(pid == self._agent or name in _SHELLS for pid, name in parents)

    def ended_inside(self, code: int) -> None:
        """A program that a library runs has ended this way: so does this process, unless it hides that."""
        self._inside = code

    def _tell(self, code: int, *, hidden: bool = False) -> None:
        if not code or self._told or is_judged_by_test():
            return
        self._told = True
        self._notes.add(
            ended=getpid(),
            code=code & 0xFF or code,
            above=above(self._agent),
            command=_command(),
            asks=self._asks(),
            cut_short=isinstance(self._error, BrokenPipeError),
            hidden=hidden,
        )

    def _begins_anew(self) -> None:
        self._code = self._inside = 0
        self._error, self._told = None, False

    def _exits(self, code: object, error: BaseException | None = None) -> None:
        """By the code that a SystemExit holds, the `error` where that is at hand."""
        self._code = code if isinstance(code, int) else int(code is not None)
        if not self._code and error is not None:
            self._doubt_alarm(error.__dict__.get(_IN_ALARM) or _in_alarm(_frames(error)))
        if not self._code and error is not None and error.__context__ is not None:
            from ..source.uses import unwinds

            frame = _raised_in(error)
            place = error.__dict__.get(_PLACE) or (frame and _place(frame))
            if error.__dict__.get(_CUTS_OFF) or unwinds(frame):
                self._inside = 1
            elif place:
                self._doubt(error.__context__, *place)

    def _drops(self, error: BaseException | None) -> None:
        """What Python only prints of an exit function."""
        frame = _raised_in(error) if isinstance(error, AssertionError) else None
        if frame is not None and self._is_of_tree(frame.f_code.co_filename):
            self._inside = 1

    def _doubt(self, cause: BaseException, file: str, line: int) -> None:
        """It ends with 0 where it handles what has gone wrong: it may be that it has nothing to do, or cannot."""
        if self._is_of_tree(file) and isinstance(cause, Exception) and not isinstance(cause, _NO_FAILURES):
            place = f"{os.path.relpath(file, self._folders[0])} line {line}"
            self._notes.add(doubt=f"it ended with 0 for {type(cause).__name__}: {cause} ({place})"[:400])

    def _is_of_tree(self, file: str) -> bool:
        return os.path.abspath(file).startswith(self._folders[0])

    def _dies(self, error: BaseException) -> None:
        self._error = error
        self._code = _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1

    def _leaves(self) -> None:
        self._look_at_error()
        self._tell(self._code or self._inside, hidden=not self._code & 0xFF)
        if not (self._code or self._inside):
            self._notes.write(f'{{"well": {getpid()}}}')
        self._error = None  # it holds the frames of the program, whose objects Python is about to finalize

    def _look_at_error(self) -> None:
        """The hook that was told of it may have been the program's own."""
        error = getattr(sys, "last_value", None)
        if not self._code and isinstance(error, BaseException) and _ended_the_program(error):
            self._dies(error)

    def _asks(self) -> bool:
        words: list[str] = getattr(sys, "orig_argv", [])
        if sys.argv[:1] == ["-m"]:  # of a module that runpy has not found
            return words[words.index("-m") + 1 :][:1] == ["pip"] if "-m" in words else False
        if sys.argv[:1] != ["-c"]:
            return False
        missing = isinstance(self._error, ImportError) and self._error.name
        if missing:
            return str(missing).partition(".")[0] not in self._names
        from ..source.asks import only_asks

        return only_asks(read(COMMAND), self._names)

    def _look_at_shell(self) -> None:
        parent = getppid()
        if parent == self._agent or os.environ.get(_RECORDED) == str(parent):
            return
        try:
            shell = os.path.basename(os.readlink(f"/proc/{parent}/exe"))
            if shell in _SHELLS and self._is_of_stage(parent):
                self._notes.write(f'{{"under": {parent}, "shell": "{shell}"}}')
        except OSError:  # no /proc, or the parent has gone
            return

    def _is_of_stage(self, shell: int) -> bool:
        """Whether a shell may go on after a failure, or runs a script of the stage; the system's are its."""
        with open(f"/proc/{shell}/cmdline", "rb") as f:
            arguments = [os.fsdecode(word) for word in f.read().split(b"\0")[1:]]
        first = next((word for word in arguments if word and not word.startswith(("-", "+"))), "")
        if "-c" in arguments:
            import re

            return re.search(_GOES_ON, first) is not None
        return not os.path.isabs(first) or first.startswith(self._folders)


def _of_the_target(error: BaseException, code: int) -> int:
    """What `multiprocessing` would have returned of its target, where Python has failed to end the threads: those
    of the pool from one of which the process was forked are gone.
    """
    for frame in _frames(error):
        if is_of(frame, "multiprocessing") and frame.f_code.co_name == "_bootstrap":
            return int(frame.f_locals.get("exitcode", code))
    return code


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Those that an exception came out of, the innermost last."""
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _in_alarm(frames: Iterator[FrameType]) -> tuple[str, int] | None:
    """Where the handler of SIGALRM is, if it is among the frames."""
    signals: Any = sys.modules.get("signal")
    handler = getattr(signals and signals.getsignal(signals.SIGALRM), "__code__", None)
    found = (frame for frame in frames if frame.f_code is handler) if handler is not None else ()
    return next(((frame.f_code.co_filename, frame.f_lineno) for frame in found), None)


def _above(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _raised_in(error: BaseException) -> FrameType | None:
    """The innermost frame, but for this package's own, that an exception came out of."""
    found = None
    for frame in _frames(error):
        found = found if is_of(frame, OWN) else frame
    return found


def _watch_exits(tell: Callable[[object, BaseException], None]) -> None:
    """Have the interpreter tell what a SystemExit holds that ends it: it asks for `code` where no Python runs any more.

    Of builtin types only their own dictionary can be written to. Until 3.12 `sys.exit` makes no object until there is
    someone to catch it.
    """
    attributes: Any = gc.get_referents(SystemExit.__dict__)[0]
    own = attributes.get("code") if isinstance(attributes, dict) else None
    if own is None:
        return

    def code(error: SystemExit) -> object:
        value: object = own.__get__(error)
        try:
            _getframe(1)
        except ValueError:
            tell(value, error)
        return value

    attributes["code"] = property(code, own.__set__, own.__delete__, own.__doc__)
    if sys.version_info < (3, 12):
        sys.exit = _exit


def _exit(status: object = None, /) -> Any:
    """Exit the interpreter by raising SystemExit(status).

    If the status is omitted or None, it defaults to zero (i.e., success).
    If the status is an integer, it will be used as the system exit status.
    If it is another kind of object, it will be printed and the system
    exit status will be one (i.e., failure).
    """
    if isinstance(status, SystemExit):
        raise status
    error = SystemExit(*(status if isinstance(status, tuple) else () if status is None else (status,)))
    error.__dict__[_IN_ALARM] = _in_alarm(_above(_getframe(1)))
    if exc_info()[1] is not None:  # the interpreter has no traceback when it asks, before 3.11
        from ..source.uses import unwinds

        frame = outside(_getframe(1))
        error.__dict__.update({_CUTS_OFF: unwinds(frame), _PLACE: frame and _place(frame)})
    raise error


_exit.__name__ = _exit.__qualname__ = "exit"
_exit.__module__ = "sys"


def _place(frame: FrameType) -> tuple[str, int]:
    return frame.f_code.co_filename, frame.f_lineno


def _ended_the_program(error: BaseException) -> bool:
    """Whether an exception came out of the program, and of no more than a part of it."""
    traceback = error.__traceback__
    frame = traceback and traceback.tb_frame
    if frame is None or outside(frame.f_back) is not None:
        return False
    return frame.f_globals.get("__name__") in ("__main__", "runpy")


def _command() -> str:
    """How this process was started."""
    import shlex

    words: list[str] = getattr(sys, "orig_argv", [])
    if not words:
        try:
            with open("/proc/self/cmdline", "rb") as f:
                words = [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]
        except OSError:
            words = [sys.executable or "python", *getattr(sys, "argv", [])]
    return " ".join(map(shlex.quote, words))[:400]
