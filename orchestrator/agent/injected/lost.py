"""An AssertionError that nobody looks at: in a thread, a pool, a task, a child process, or under `suppress`.

Whoever asks for it (`result()`, `exception()`, an exit code, an `excepthook` of one's own) has seen it, and what the
test makes of it is its own affair. What is not known to have been dropped counts as seen.
"""

from __future__ import annotations

import sys
from functools import wraps
from os import getpid
from sys import _getframe  # bound here: a test may take it, or replace it, while this is called

from .checks import Pending, Unentered
from .children import Children
from .ends import above
from .frames import OWN, is_of, local, outside
from .inner import CALL, Inner
from .stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, ModuleType
    from typing import Any, Callable

    from .checks import Checks
    from .ends import End

_RETURNED = "PytestReturnNotNoneWarning"
_WARNINGS = (_RETURNED, "PytestUnhandledCoroutineWarning", "PytestUnhandledThreadExceptionWarning")
_OF_ASSERTIONS = "PytestUnraisableExceptionWarning"  # in `__del__` and such, where much else may go wrong as well
_PENDING = "_nsa_pod_pending"
_EXPECTED = {
    "WarningsChecker": "a warning",
    "_AssertWarnsContext": "a warning",
    "_AssertLogsContext": "a log",
}
_CONTEXTS = ("RaisesExc", "RaisesContext", "_AssertRaisesContext", *_EXPECTED)


class Lost:
    """Watches the places where an exception can be left lying."""

    def __init__(self, checks: Checks, end: End) -> None:
        self._checks = checks
        self._children = Children(checks)
        self._inner = Inner(checks.tree, checks.notes, self._children, end)
        checks.imported.append(self._inner.watch_import)
        checks.failing, checks.comparing = self._inner.check_fails, self._inner.comparison_fails
        self._inner.lose = lambda where, error: checks.now.lost.append(_sentence(where, error))
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "threading": self._watch_threads,
            "concurrent.futures._base": self._watch_futures,
            "multiprocessing.pool": self._watch_pools,
            "multiprocessing.process": self._watch_processes,
            **self._children.after_import,
            **self._inner.after_import,
            "asyncio.base_events": self._watch_tasks,
            "contextlib": self._watch_suppress,
            "warnings": self._watch_coroutines,
            "_pytest.warning_types": self._watch_warnings,
            **dict.fromkeys(("_pytest.raises", "_pytest.python_api", "unittest.case"), self._watch_raises),
            "_pytest.recwarn": self._watch_entering,
        }

    def start(self) -> None:
        """Also in modules that Python itself has loaded by now."""
        for name, watch in self.after_import.items():
            if name in sys.modules:
                watch(sys.modules[name])
        self._watch_this_process()
        self._children.start()
        self._inner.start()

    def _watch_this_process(self) -> None:
        """A process that a test has started, and that ends by an AssertionError, says so."""
        default = sys.excepthook

        def excepthook(kind: Any, error: Any, traceback: Any) -> None:
            self._died(error)
            default(kind, error, traceback)

        sys.excepthook = excepthook

    def _died(self, error: BaseException) -> None:
        test = test_around()
        if test is not None and isinstance(error, AssertionError):
            pids = [getpid(), *(pid for pid, _ in above())]
            self._checks.notes.add(died=_sentence("in a child process", error), test=test, pids=pids)

    def _watch_threads(self, threading: Any) -> None:
        """pytest has an `excepthook` of its own while a test runs, whose warning is seen below: this is for others."""
        default = threading.excepthook

        def excepthook(args: Any) -> None:
            in_test = self._checks.now.test is not None and "_pytest.config" in sys.modules
            if isinstance(args.exc_value, Exception if in_test else AssertionError):
                self._checks.now.lost.append(_sentence("in a thread", args.exc_value))
            elif isinstance(args.exc_value, SystemExit) and self._checks.now.test is None:
                self._inner.thread_leaves(args.exc_value.code)
            default(args)

        threading.excepthook = excepthook

    def _watch_futures(self, futures: Any) -> None:
        set_exception = futures.Future.set_exception

        def watched(future: Any, exception: Any) -> None:
            if isinstance(exception, AssertionError):
                self._until_asked(future, _sentence("in a pool", exception))
            set_exception(future, exception)

        futures.Future.set_exception = watched
        _tell_when_asked(futures.Future, "result", "exception")

    def _watch_pools(self, pool: Any) -> None:
        self._inner.watch_pools(pool)
        for results in (pool.ApplyResult, pool.MapResult):
            self._watch_results(results)
        _tell_when_asked(pool.ApplyResult, "get", "successful")
        for results in (pool.IMapIterator, pool.IMapUnorderedIterator):
            results._set = self._holding(results._set)
        pool.IMapIterator.next = pool.IMapIterator.__next__ = _handing_out(pool.IMapIterator.next)

    def _holding(self, set_result: Callable[..., Any]) -> Callable[..., Any]:
        """Of what a pool computes for an iteration: each has to be asked for."""

        @wraps(set_result)
        def watched(results: Any, i: Any, outcome: Any) -> Any:
            success, error = outcome
            if not success and isinstance(error, AssertionError):
                pending = Pending(_sentence("in a pool", error))
                self._checks.now.pending.append(pending)
                results.__dict__.setdefault(_PENDING, []).append((error, pending))
            return set_result(results, i, outcome)

        return watched

    def _watch_results(self, results: Any) -> None:
        set_result = results._set

        def watched(result: Any, i: Any, outcome: Any) -> None:
            success, value = outcome
            if not success and isinstance(value, AssertionError) and not result._error_callback:
                self._until_asked(result, _sentence("in a pool", value))
            set_result(result, i, outcome)
            self._inner.set_result(result, success=success)

        results._set = watched

    def _until_asked(self, holder: Any, sentence: str) -> None:
        """Remember what `holder` has until somebody asks it."""
        pending = Pending(sentence)
        self._checks.now.pending.append(pending)
        holder.__dict__[_PENDING] = pending

    def _watch_tasks(self, base_events: Any) -> None:
        """What asyncio tells of a task that is gone, and whose exception was never retrieved."""
        handle = base_events.BaseEventLoop.call_exception_handler

        def watched(loop: Any, context: Any) -> None:
            if isinstance(context.get("exception"), AssertionError):
                self._checks.now.lost.append(_sentence("in a task", context["exception"]))
            handle(loop, context)

        base_events.BaseEventLoop.call_exception_handler = watched

    def _watch_coroutines(self, warnings: Any) -> None:
        """What Python only warns of: one that is gone, and was never awaited."""
        warn = warnings._warn_unawaited_coroutine

        def watched(coroutine: Any) -> None:
            code = getattr(coroutine, "cr_code", None)
            if code is not None and _holds_mark(code):
                said = f"the coroutine {code.co_name}() holds assertions, and was never awaited"
                self._checks.now.lost.append(said)
            warn(coroutine)

        warnings._warn_unawaited_coroutine = watched

    def _watch_suppress(self, contextlib: Any) -> None:
        leave = contextlib.suppress.__exit__

        def __exit__(context: Any, kind: Any, error: Any, traceback: Any) -> Any:
            frame = _getframe(1)
            key = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            dropped = leave(context, kind, error, traceback)
            self._checks.now.swallowed.pop(key, None)
            is_lost = dropped and isinstance(error, AssertionError)
            if is_lost and self._checks.raised_in_a_check(error, keeps_it=False):
                self._checks.now.swallowed[key] = _sentence("and suppressed", error)
            return dropped

        contextlib.suppress.__exit__ = __exit__

    def _watch_raises(self, module: Any) -> None:
        """What expects any exception is not to take the failure of a check beside it for one."""
        for name in ("RaisesExc", "RaisesContext", "_AssertRaisesContext"):
            if name in vars(module):
                kind = getattr(module, name)
                kind.__exit__ = self._expecting(kind.__exit__)
        self._watch_entering(module)

    def _watch_entering(self, module: Any) -> None:
        """What expects an exception, a warning or a log only where it is entered."""
        for name in _CONTEXTS:
            kind = vars(module).get(name)
            if kind is not None:
                kind.__init__, kind.__enter__ = self._making(kind.__init__), _entering(kind.__enter__)

    def _making(self, make: Callable[..., None]) -> Callable[..., None]:
        @wraps(make)
        def __init__(context: Any, *args: Any, **kwargs: Any) -> None:
            frame = outside(_getframe(1), "_pytest", "unittest", "numpy")
            if frame is not None and self._checks.now.test is not None:
                sentence = f"what expects {_EXPECTED.get(type(context).__name__, 'an exception')} was not entered"
                context.__dict__[_PENDING] = unentered = Unentered(sentence, frame)
                self._checks.now.pending.append(unentered)
            make(context, *args, **kwargs)

        return __init__

    def _expecting(self, leave: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(leave)
        def __exit__(context: Any, kind: Any, error: Any, traceback: Any) -> Any:
            __tracebackhide__ = True
            met = leave(context, kind, error, traceback)
            if met:
                self._checks.note_raised(_getframe(1))
            if met and isinstance(error, AssertionError) and not _expects_assertion(context):
                while traceback.tb_next is not None and not _is_of_check(traceback.tb_next.tb_frame):
                    traceback = traceback.tb_next
                if traceback.tb_frame is _getframe(1):
                    self._checks.now.lost.append(_sentence("and taken for the exception that was expected", error))
            return met

        return __exit__

    def _watch_warnings(self, warning_types: Any) -> None:
        """pytest's own warnings that a test checked nothing, or not all, whatever filters make of them."""
        for name in (*_WARNINGS, _OF_ASSERTIONS):
            category = getattr(warning_types, name, None)
            if category is not None:
                category.__init__ = self._telling(name)

    def _telling(self, name: str) -> Callable[..., None]:
        def __init__(warning: Any, *args: Any) -> None:
            Warning.__init__(warning, *args)
            said = str(args[0] if args else "")
            if name == _OF_ASSERTIONS and "\nAssertionError" not in said:
                return
            if name == _RETURNED and not self._is_of_the_tree(local(_getframe(1), "pyfuncitem")):
                return
            text = said.partition("\n")[0]
            self._checks.now.lost.append(f"{name}: {text}"[:300])

        return __init__

    def _is_of_the_tree(self, item: Any) -> bool:
        """Whether a test leads to the tree's code: `from doctest import testmod` is one by its name alone."""
        from .reached import reached  # which takes `typing`, that pytest has loaded

        codes = reached(getattr(item, "obj", None)).codes
        return not codes or any(code.co_filename.startswith(self._checks.tree) for code in codes)

    def _watch_processes(self, process: Any) -> None:
        """Of multiprocessing: a child whose function raises ends with exit code 1, which the parent may ask for."""
        self._children.watch_processes(process)
        bootstrap = process.BaseProcess._bootstrap

        def _bootstrap(child: Any, *args: Any, **kwargs: Any) -> Any:
            run = child.run

            def watched() -> None:
                try:
                    run()
                except AssertionError as error:
                    self._died(error)
                    raise
                except SystemExit as error:  # of what has caught it and handed it on, as that of torch does
                    if error.code and error.__context__ is not None:
                        self._died(error.__context__)
                    raise

            child.run = watched
            return bootstrap(child, *args, **kwargs)

        process.BaseProcess._bootstrap = _bootstrap


def _entering(enter: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(enter)
    def __enter__(context: Any) -> Any:
        unentered = context.__dict__.get(_PENDING)
        if unentered is not None:
            unentered.entered = True
        return enter(context)

    return __enter__


def _holds_mark(code: CodeType) -> bool:
    """Whether an assertion stands in it, by the mark beside that."""
    begins = code.co_filename + ":"
    keys = (constant[0] if isinstance(constant, tuple) and constant else constant for constant in code.co_consts)
    return any(isinstance(key, str) and key.startswith(begins) for key in keys)


def _tell_when_asked(kind: Any, *methods: str) -> None:
    """Note it at the return of `methods`: who waits for a result has called them before there was one."""

    def asked(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def ask(holder: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(holder, *args, **kwargs)
            finally:
                for pending in (holder.__dict__.get(_PENDING), holder.__dict__.get(CALL)):
                    if pending is not None:
                        pending.retrieved = True

        return ask

    for name in methods:
        setattr(kind, name, asked(getattr(kind, name)))


def _handing_out(next_of: Callable[..., Any]) -> Callable[..., Any]:
    """Of an iteration over what a pool computes: what it raises is seen."""

    @wraps(next_of)
    def watched(results: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return next_of(results, *args, **kwargs)
        except AssertionError as error:
            for held, pending in results.__dict__.get(_PENDING, ()):
                pending.retrieved |= held is error
            raise

    return watched


def _is_of_check(frame: FrameType) -> bool:
    """Whether it is of a library's comparison, which only fails by an AssertionError of its own."""
    return is_of(frame, OWN, "unittest", "numpy", "torch", "pandas")


def _expects_assertion(context: Any) -> bool:
    """Whether it is an AssertionError that is expected, and not just any exception."""
    names = ("expected_exceptions", "expected_exception", "expected")
    expected = next((getattr(context, name) for name in names if hasattr(context, name)), ())
    kinds = expected if isinstance(expected, tuple) else (expected,)
    return any(isinstance(kind, type) and issubclass(kind, AssertionError) for kind in kinds)


def _sentence(where: str, error: BaseException) -> str:
    text = str(error).partition("\n")[0][:200]
    kind = type(error).__name__
    article = "an" if kind[0] in "AEIOU" else "a"
    return f"{article} {kind} was raised {where}, and nobody looked at it: {text}".rstrip(": ")
