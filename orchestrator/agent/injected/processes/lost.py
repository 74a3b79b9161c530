"""An AssertionError that nobody looks at: in a thread, a pool, a task, a child process, or under `suppress`.

Whoever asks for it (`result()`, `exception()`, an exit code, an `excepthook` of one's own) has seen it, and what the
test makes of it is its own affair. What is not known to have been dropped counts as seen.
"""

from __future__ import annotations

import sys
from os import getpid

from ..checks.pending import Pending, Unentered, give_up, held_by, hold, retrieve
from ..frames import OWN, assertion_in, is_of, local, outside
from ..hooks import replace, watch
from ..stage import runs_pytest, test_around
from .ancestors import above
from .children import Children
from .inner import Inner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, ModuleType
    from typing import Any, Callable

    from ..checks.records import Checks
    from .ends import End

_RETURNED = "PytestReturnNotNoneWarning"
_WARNINGS = (_RETURNED, "PytestUnhandledCoroutineWarning", "PytestUnhandledThreadExceptionWarning")
_OF_ASSERTIONS = "PytestUnraisableExceptionWarning"  # in `__del__` and such, where much else may go wrong as well
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
        self.children = Children(checks)
        self.inner = Inner(checks.tree, checks.notes, self.children, end)
        checks.failing, checks.comparing = self.inner.check_fails, self.inner.comparison_fails
        self.inner.lose = self._lose
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "threading": lambda module: watch(module, "excepthook", before=self._ends_thread),
            "concurrent.futures._base": lambda module: self._watch_futures(module.Future),
            "multiprocessing.pool": self._watch_pools,
            "multiprocessing.process": lambda module: replace(module.BaseProcess, "_bootstrap", self._bootstrapping),
            "asyncio.base_events": self._watch_tasks,
            "contextlib": lambda module: watch(module.suppress, "__exit__", after=self._has_suppressed),
            "warnings": lambda module: watch(module, "_warn_unawaited_coroutine", before=self._is_unawaited),
            "_pytest.warning_types": self._watch_warnings,
            **dict.fromkeys(("_pytest.raises", "_pytest.python_api", "unittest.case"), self._watch_raises),
            "_pytest.recwarn": self._watch_entering,
        }

    def start(self) -> None:
        """A process that a test has started, and that ends by an AssertionError, says so."""
        watch(sys, "excepthook", before=lambda frame, kind, error, traceback: self._died(error))
        watch(sys, "unraisablehook", before=self._ends_bare_thread)
        self.children.start()
        self.inner.start()

    def _lose(self, where: str, error: BaseException) -> None:
        self._checks.now.lost.append(_sentence(where, error))

    def _died(self, error: BaseException) -> None:
        test = test_around()
        if test is not None and isinstance(error, AssertionError):
            pids = [getpid(), *(pid for pid, _ in above())]
            self._checks.notes.add(died=_sentence("in a child process", error), test=test, pids=pids)

    def _ends_bare_thread(self, frame: FrameType | None, unraisable: Any) -> None:
        """One that `_thread` has started."""
        if "thread" in str(unraisable.err_msg or "") and isinstance(unraisable.exc_value, AssertionError):
            self._lose("in a thread", unraisable.exc_value)
            self.inner.thread_fails(unraisable.exc_value)

    def _ends_thread(self, frame: FrameType, args: Any) -> None:
        """pytest has an `excepthook` of its own while a test runs, whose warning is seen below: this is for others."""
        in_test = self._checks.now.test is not None and runs_pytest()
        if isinstance(args.exc_value, Exception if in_test else AssertionError):
            self._lose("in a thread", args.exc_value)
            self.inner.thread_fails(args.exc_value)
        elif isinstance(args.exc_value, SystemExit) and self._checks.now.test is None:
            self.inner.thread_leaves(args.exc_value.code)

    def _watch_futures(self, future: Any) -> None:
        watch(future, "set_exception", before=lambda frame, future, exception: self._hold(future, exception))
        _retrieve_by(future, "result", "exception")
        watch(future, "cancel", before=_is_given_up)

    def _watch_pools(self, pool: Any) -> None:
        for results in (pool.ApplyResult, pool.MapResult, pool.IMapIterator, pool.IMapUnorderedIterator):
            watch(results, "_set", before=self._has_result)
        _retrieve_by(pool.ApplyResult, "get", "successful")
        watch(pool.IMapIterator, "next", failed=_hands_out)
        pool.IMapIterator.__next__ = pool.IMapIterator.next

    def _has_result(self, frame: FrameType, results: Any, i: object, outcome: Any) -> None:
        success, value = outcome
        if not success and not getattr(results, "_error_callback", None):
            self._hold(results, value)

    def _hold(self, holder: Any, error: BaseException) -> None:
        """Remember what was raised in a pool until somebody asks `holder` for it."""
        failed = assertion_in(error)
        if failed is not None:
            pending = Pending(_sentence("in a pool", failed), error)
            self._checks.now.pending.append(pending)
            hold(pending, holder)

    def _watch_tasks(self, base_events: Any) -> None:
        """What asyncio tells of a task that is gone, and whose exception was never retrieved."""
        watch(base_events.BaseEventLoop, "call_exception_handler", before=self._has_gone)

    def _has_gone(self, frame: FrameType, loop: Any, context: Any) -> None:
        failed = assertion_in(context.get("exception"))
        if failed is not None:
            self._lose("in a task", failed)

    def _is_unawaited(self, frame: FrameType, coroutine: Any) -> None:
        """What Python only warns of: one that is gone, and was never awaited."""
        code = getattr(coroutine, "cr_code", None)
        if code is not None and _holds_mark(code):
            said = f"the coroutine {code.co_name}() holds assertions, and was never awaited"
            self._checks.now.lost.append(said)

    def _has_suppressed(self, frame: FrameType, dropped: object, context: Any, kind: Any, error: Any, _: Any) -> None:
        key = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._checks.now.swallowed.pop(key, None)
        failed = assertion_in(error) if dropped else None
        if failed is not None and self._checks.raised_in_a_check(failed, keeps_it=False):
            self._checks.now.swallowed[key] = _sentence("and suppressed", failed)

    def _watch_raises(self, module: Any) -> None:
        """What expects any exception is not to take the failure of a check beside it for one."""
        for name in ("RaisesExc", "RaisesContext", "_AssertRaisesContext"):
            if name in vars(module):
                watch(getattr(module, name), "__exit__", after=self._has_expected)
        self._watch_entering(module)

    def _watch_entering(self, module: Any) -> None:
        """What expects an exception, a warning or a log only where it is entered."""
        for name in _CONTEXTS:
            if name in vars(module):
                watch(getattr(module, name), "__init__", before=self._is_made)
                watch(getattr(module, name), "__enter__", before=lambda frame, context: retrieve(context))

    def _is_made(self, frame: FrameType, context: Any, *_: Any, **__: Any) -> None:
        maker = outside(frame, "_pytest", "unittest", "numpy")
        if maker is not None and self._checks.now.test is not None:
            sentence = f"what expects {_EXPECTED.get(type(context).__name__, 'an exception')} was not entered"
            unentered = Unentered(sentence, maker)
            self._checks.now.pending.append(unentered)
            hold(unentered, context)

    def _has_expected(self, frame: FrameType, met: object, context: Any, kind: Any, error: Any, traceback: Any) -> None:
        if met and _expects_anything(context) and traceback.tb_next is None and _is_own_mistake(error):
            said = f"{type(error).__name__}: {error}"[:200]
            self._checks.now.vacuous.append(f"a mistake of the test is taken for the exception expected: {said}")
        elif met:
            self._checks.note_raised(frame)
        if met and isinstance(error, AssertionError) and not _expects_assertion(context):
            while traceback.tb_next is not None and not _is_of_check(traceback.tb_next.tb_frame):
                traceback = traceback.tb_next
            if traceback.tb_frame is frame or (
                traceback.tb_frame.f_code.co_name == "<lambda>" and is_of(frame, "unittest", "_pytest")
            ):
                self._lose("and taken for the exception that was expected", error)

    def _watch_warnings(self, warning_types: Any) -> None:
        """pytest's own warnings that a test checked nothing, or not all, whatever filters make of them."""
        for name in (*_WARNINGS, _OF_ASSERTIONS):
            if hasattr(warning_types, name):
                watch(getattr(warning_types, name), "__init__", before=self._is_warned)

    def _is_warned(self, frame: FrameType, warning: Any, *args: Any) -> None:
        name, said = type(warning).__name__, str(args[0] if args else "")
        if name == _OF_ASSERTIONS and not self._fails_in_tests(said):
            return
        if name == _RETURNED and not self._is_of_the_tree(local(frame, "pyfuncitem")):
            return
        text = said.partition("\n")[0]
        self._checks.now.lost.append(f"{name}: {text}"[:300])

    def _fails_in_tests(self, said: str) -> bool:
        """Whether an assertion failed that the tests came to, not one of a library that they have broken on purpose."""
        import re

        traceback, failed, _ = said.partition("\nAssertionError")
        places = re.findall('^  File "(.+)", line ', traceback, re.MULTILINE)
        return bool(failed and (not places or any(place in self._checks.facts for place in places)))

    def _is_of_the_tree(self, item: Any) -> bool:
        """Whether a test leads to the tree's code: `from doctest import testmod` is one by its name alone."""
        from ..checks.reached import reached  # which takes `typing`, that pytest has loaded

        codes = reached(getattr(item, "obj", None)).codes
        return not codes or any(code.co_filename.startswith(self._checks.tree) for code in codes)

    def _bootstrapping(self, bootstrap: Callable[..., Any]) -> Callable[..., Any]:
        """Of multiprocessing: a child whose function raises ends with exit code 1, which the parent may ask for."""

        def _bootstrap(child: Any, *args: Any, **kwargs: Any) -> Any:
            watch(child, "run", failed=self._has_failed)
            return bootstrap(child, *args, **kwargs)

        return _bootstrap

    def _has_failed(self, frame: FrameType, error: BaseException) -> None:
        if isinstance(error, AssertionError):
            self._died(error)
        elif isinstance(error, SystemExit) and error.code and error.__context__ is not None:
            self._died(error.__context__)  # of what has caught it and handed it on, as that of torch does


def _holds_mark(code: CodeType) -> bool:
    """Whether an assertion stands in it, by the mark beside that."""
    begins = code.co_filename + ":"
    keys = (constant[0] if isinstance(constant, tuple) and constant else constant for constant in code.co_consts)
    return any(isinstance(key, str) and key.startswith(begins) for key in keys)


def _retrieve_by(kind: Any, *methods: str) -> None:
    """At the end of `methods`: who waits for a result has called them before there was one."""
    for name in methods:
        watch(kind, name, after=_is_asked, failed=_is_asked)


def _is_asked(frame: FrameType, came: object, holder: Any, *_: Any, **__: Any) -> None:
    retrieve(holder)


def _is_given_up(frame: FrameType, future: Any) -> None:
    """By an executor's `map`, whose iteration has raised another one's failure: that stands for all."""
    if is_of(frame, "concurrent") and isinstance(sys.exc_info()[1], AssertionError):
        give_up(future)


def _hands_out(frame: FrameType, error: BaseException, results: Any, *_: Any, **__: Any) -> None:
    """Of an iteration over what a pool computes: what it raises is seen."""
    for pending in held_by(results):
        pending.retrieved |= pending.error is error


def _is_of_check(frame: FrameType) -> bool:
    """Whether it is of a library's comparison, which only fails by an AssertionError of its own."""
    return is_of(frame, OWN, "unittest", "numpy", "torch", "pandas")


def _is_own_mistake(error: BaseException) -> bool:
    """Whether a name, or what a module or a function was to have, is not there: of what a test raises itself."""
    is_absent = isinstance(error, AttributeError) and str(error).startswith(("module '", "'function' object"))
    return is_absent or isinstance(error, NameError)


def _expects_anything(context: Any) -> bool:
    return any(kind in (Exception, BaseException) for kind in _expected_by(context))


def _expects_assertion(context: Any) -> bool:
    """Whether it is an AssertionError that is expected, and not just any exception."""
    return any(isinstance(kind, type) and issubclass(kind, AssertionError) for kind in _expected_by(context))


def _expected_by(context: Any) -> tuple[object, ...]:
    names = ("expected_exceptions", "expected_exception", "expected")
    expected = next((getattr(context, name) for name in names if hasattr(context, name)), ())
    return expected if isinstance(expected, tuple) else (expected,)


def _sentence(where: str, error: BaseException) -> str:
    text = str(error).partition("\n")[0][:200]
    kind = type(error).__name__
    article = "an" if kind[0] in "AEIOU" else "a"
    return f"{article} {kind} was raised {where}, and nobody looked at it: {text}".rstrip(": ")
