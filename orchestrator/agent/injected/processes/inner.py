"""What fails inside a program of the tree and does not end it: programs that it runs in itself, and calls in pools.

A script that is run by `runpy`, `exec` or `import` ends nobody but itself where its exception is caught; a call in a
pool has failed unseen where nobody asks for its result. Told like children, by `{"child": NAME, "code": 3, ...}`.
"""

from __future__ import annotations

import atexit
import os
import sys

from ..checks.pending import Pending, held_by, hold
from ..files import place_of
from ..frames import IMPORTING, assertion_in, outside
from ..hooks import watch
from ..stage import runs_pytest
from .children import is_in_test

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from ..stage import Notes
    from .children import Children
    from .ends import End

_RUNNING = ("runpy", *IMPORTING)
CHECKING = ("test", "check", "verify", "validate", "assert")
"""How functions are called whose assertions are checks, and not what they demand of their arguments."""


def is_checking(name: str) -> bool:
    return name.lstrip("_").startswith(CHECKING)


class Call(Pending):
    """A call that code of the tree has given to a pool, or `elsewhere`."""

    def __init__(self, function: object, frame: FrameType, elsewhere: str = "") -> None:
        super().__init__(f"{getattr(function, '__name__', function)}() {elsewhere or 'in a pool'}")
        self.file, self.line = frame.f_code.co_filename, frame.f_lineno


class Inner:
    """Watches `runpy`, `sys.exit`, `concurrent.futures` and the pools of `multiprocessing`."""

    def __init__(self, tree: str, notes: Notes, children: Children, end: End) -> None:
        self._tree, self._notes, self._children, self._end = tree, notes, children, end
        self._told: set[tuple[str, int]] = set()
        self._failed: list[Call] = []
        self.lose: Callable[[str, BaseException], None] = lambda where, error: None  # of a test
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "runpy": self._watch_runpy,
            "concurrent.futures.thread": lambda module: self._watch_executor(module.ThreadPoolExecutor),
            "concurrent.futures.process": lambda module: self._watch_executor(module.ProcessPoolExecutor),
            "multiprocessing.pool": self._watch_pools,
            "asyncio.tasks": lambda tasks: watch(tasks, "gather", after=self._has_gathered),
        }

    def start(self) -> None:
        watch(sys, "exit", before=self._leaves)
        atexit.register(self._tell)
        os.register_at_fork(after_in_child=self._failed.clear)

    def _watch_runpy(self, runpy: Any) -> None:
        for name in ("run_path", "run_module"):
            watch(runpy, name, failed=self._has_raised)

    def _has_raised(self, frame: FrameType, error: BaseException, *args: Any, **named: Any) -> None:
        program, *_ = (*args, *named.values())
        status = error.code if isinstance(error, SystemExit) else 1
        if status not in (None, 0):
            self._ended(str(program), status, frame, type(error))

    def has_imported(self, module: ModuleType, error: BaseException | None, frame: FrameType) -> None:
        """How a module of the tree has ended, which `frame` imports."""
        if isinstance(error, SystemExit) and error.code not in (None, 0):
            self._ended(module.__name__, error.code, frame, SystemExit)

    def thread_leaves(self, status: object) -> None:
        """By `sys.exit`, which ends the thread, and nobody else: nor does the process return it."""
        if status not in (None, 0) and not runs_pytest():
            self._end.ended_inside(status if isinstance(status, int) else 1)

    def thread_fails(self, error: BaseException) -> None:
        """By an assertion in code of a program, which Python only prints: to a stream that nobody reads, if any; into
        one in memory, which may be looked at, it is not lost.
        """
        traceback, place = error.__traceback__, None
        while traceback is not None:
            if self._children.is_ours(traceback.tb_frame):
                place = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
            traceback = traceback.tb_next
        if place is not None and (sys.stderr is None or hasattr(sys.stderr, "name")):
            self.note("an assertion in a thread", 1, *place, call=True)

    def _leaves(self, frame: FrameType | None, status: object = None) -> None:
        """By `sys.exit`: the module that runs inside of another one, if there is one."""
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if status not in (None, 0) and frame is not None:
            self._ended(frame.f_code.co_filename, status, frame.f_back, SystemExit)

    def _ended(self, program: str, status: object, frame: FrameType | None, kind: type) -> None:
        """A program has ended badly below `frame`."""
        starter = outside(frame, *_RUNNING)
        code = (status & 0xFF or status) if isinstance(status, int) else 1
        if starter is None or is_in_test(starter):
            return
        if not self._children.is_ours(starter):
            if os.path.abspath(program).startswith(self._tree):
                self._end.ended_inside(code)  # as a profiler runs it
        elif self._children.drops(starter, kind):
            self.note(f"python {program}", code, starter.f_code.co_filename, starter.f_lineno, call=False)

    def note(self, name: str, code: int, file: str, line: int, *, call: bool) -> None:
        """Tell of a `call`, or a program, that failed in this line and ended nothing; of a line once."""
        if (file, line) not in self._told:
            self._told.add((file, line))
            self._notes.add(child=name, code=code, pid=0, how="call" if call else "child", **place_of(file, line))

    def check_fails(self, frame: FrameType) -> None:
        """An assertion of a test, or of a helper that checks, fails at `frame`, in a program that calls it itself."""
        if _is_below_a_check(frame) and not is_in_test(frame) and self._children.drops(frame, AssertionError):
            name = f"an assertion of {frame.f_code.co_name}()"
            self.note(name, 1, frame.f_code.co_filename, frame.f_lineno, call=True)

    def comparison_fails(self, name: str, frame: FrameType) -> None:
        """A comparison of a library, which `frame` has called, raises an AssertionError in a program."""
        if not runs_pytest() and not is_in_test(frame) and self._children.drops(frame, AssertionError):
            self.note(f"{name}()", 1, frame.f_code.co_filename, frame.f_lineno, call=True)

    def _call(self, function: object, frame: FrameType | None) -> Call | None:
        return Call(function, frame) if frame is not None and self._children.is_ours(frame) else None

    def _watch_executor(self, executor: Any) -> None:
        watch(executor, "submit", after=self._submitted)

    def _submitted(self, frame: FrameType, future: Any, pool: Any, /, *args: Any, **kwargs: Any) -> None:
        call = self._call(args[0] if args else kwargs.get("fn"), outside(frame, "concurrent"))
        if call is not None:
            hold(call, future)
            future.add_done_callback(lambda done: self._done(call, failed=done._exception is not None))

    def _has_gathered(self, frame: FrameType, future: Any, *coroutines: Any, **options: Any) -> None:
        """With `return_exceptions`, whoever drops the results drops the exceptions."""
        is_ours = self._children.is_ours(frame)
        of_test = not is_ours and is_in_test(frame) and frame.f_code.co_filename.startswith(self._tree)
        if options.get("return_exceptions") and (is_ours or of_test) and not self._children.uses_result(frame):
            call = Call("gather", frame, "of coroutines")
            told = self._losing if of_test else lambda done: self._done(call, failed=_holds_error(done))
            future.add_done_callback(told)

    def _losing(self, future: Any) -> None:
        """Of what a test has gathered, and dropped: its checks that failed."""
        for result in () if future.cancelled() else future.result():
            failed = assertion_in(result)
            if failed is not None:
                self.lose("in a coroutine that was gathered", failed)

    def has_failed(self, result: Any, frame: FrameType) -> None:
        """A command that a program runs in itself, whose `result` holds what it raised."""
        starter = outside(frame, "click", "typer")
        if starter is not None and self._children.is_ours(starter):
            call = Call("invoke", starter, "of a command")
            hold(call, result)
            self._done(call, failed=True)

    def _watch_pools(self, pool: Any) -> None:
        for name in ("apply_async", "map_async", "starmap_async"):
            watch(pool.Pool, name, after=self._given)
        for results in (pool.ApplyResult, pool.MapResult):
            watch(results, "_set", after=lambda frame, _, result, *__: self._set_result(result))

    def _given(self, frame: FrameType, result: Any, pool: Any, /, *args: Any, **named: Any) -> None:
        call = self._call(args[0] if args else named.get("func"), outside(frame, "multiprocessing"))
        if call is not None and not result._error_callback:
            hold(call, result)
            self._set_result(result)

    def _set_result(self, result: Any) -> None:
        """What one of a pool's calls came to, if it has ended."""
        for call in held_by(result):
            if isinstance(call, Call) and result.ready():
                self._done(call, failed=not result._success)

    def _done(self, call: Call, *, failed: bool) -> None:
        if failed and call not in self._failed:
            self._failed.append(call)

    def _tell(self) -> None:
        for call in self._failed:
            if not call.retrieved:
                self.note(call.sentence, 1, call.file, call.line, call=True)


def _is_below_a_check(frame: FrameType | None) -> bool:
    while frame is not None:
        if is_checking(frame.f_code.co_name):
            return True
        frame = frame.f_back
    return False


def _holds_error(future: Any) -> bool:
    return not future.cancelled() and any(isinstance(result, Exception) for result in future.result())
