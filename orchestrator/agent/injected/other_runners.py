"""Tests that run outside pytest: unittest's, and with them those of nose2 and absl; trial's; doctest's.

They are seen where they run, whatever becomes of their results, and told as pytest's are. One that runs inside another
test is that test's affair: its failure is lost only if nobody asks the result for it.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock, get_ident
from functools import wraps
from sys import _getframe  # bound here, as in `lost`

from .checks import Pending
from .events import Events, file_of_its_own
from .frames import drops_result, is_of
from .stage import moved_up
from .unittests import Unittests, returned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from .checks import Checks
    from .stage import Config

RUNNER = "unittest"
_DOCTEST = "import doctest, sys\nif __name__ == '__main__':\n    sys.exit(doctest._test())\n"


class _Running:
    """A test that has begun: what went wrong so far, and whether that is expected of it."""

    def __init__(self, id_: str, test: object) -> None:
        self.id = id_
        self.test = test
        self.errors: list[BaseException | str] = []
        self.expects = self.failed_as_expected = False
        self.skipped: str | None = None
        self.is_trials = False  # and not unittest's, whose tests trial runs too
        self.pending: list[Pending] = []
        self.checks: dict[str, object] = {}

    def raised(self, error: BaseException, *, expected: bool = False) -> None:
        if type(error).__name__ == "SkipTest":  # unittest's, and trial's own
            self.skipped = str(error)
        elif expected:
            self.failed_as_expected = True
        elif not isinstance(error, KeyboardInterrupt) and type(error).__name__ != "_ShouldStop":
            self.errors.append(error)


class OtherRunners:
    """Watches the runners that a process imports; `test_around` says whether a test of pytest's runs them, `is_bare`
    that they run without the stage's environment variables.
    """

    def __init__(self, config: Config, checks: Checks, test_around: Callable[[], str | None], *, is_bare: bool) -> None:
        self._folder = config.one("sessions")
        self._checks = checks
        self._test_around = test_around
        self._is_bare = is_bare
        self._session: Events | None = None
        self._known: set[str] = set()
        self._unittests = Unittests(checks)
        self._lock = allocate_lock()  # tests may run in several threads
        self._main = get_ident()
        self._stacks: dict[int, list[_Running]] = {}  # of each thread, the innermost test last
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "unittest.case": self._watch_cases,
            "unittest.suite": self._watch_suites,
            "unittest.result": self._watch_results,
            "doctest": self._watch_doctest,
            "twisted.trial.reporter": self._watch_trial,
        }

    def start(self) -> None:
        """`python -m doctest` runs the module's text under another name: have it call the module, which is watched."""
        from _frozen_importlib_external import SourceFileLoader  # without what `importlib` takes with it

        get_code = SourceFileLoader.get_code

        def calling(loader: Any, name: str) -> Any:
            if name == "doctest" and _getframe(1).f_globals.get("__name__") == "runpy":
                return compile(_DOCTEST, loader.path, "exec", dont_inherit=True)
            return get_code(loader, name)

        SourceFileLoader.get_code = calling  # type: ignore[assignment, method-assign, unused-ignore]

    def tell_end(self) -> None:
        """The process ends, and its session with it."""
        if self._session is not None and self._session.is_own:
            missing = list(self._unittests.not_run())
            if missing:
                self._session.hold("not_collected", ids=missing)
            self._session.send("end", status=0)

    # --- what is told ---

    def _begin(self, id_: str, test: object, *, told: bool = True) -> _Running:
        running = _Running(id_, test)
        stack = self._stacks.setdefault(get_ident(), [])
        if not self._is_inside(stack):
            if told:
                self._tell_begin(id_)
            if get_ident() == self._main:  # of others it is not known whose check it is
                self._checks.begin(id_)
        stack.append(running)
        return running

    def _is_inside(self, stack: list[_Running]) -> bool:
        return bool(stack) or self._test_around() is not None

    def _end(self, running: _Running, result: object = None, *, told: bool = True) -> None:
        stack = self._stacks[get_ident()]
        stack.remove(running)
        running.errors += [pending.sentence for pending in running.pending if not pending.retrieved]
        if not self._is_inside(stack):
            if get_ident() == self._main:
                running.errors += self._checks.now.failures()
                running.checks = self._unittests.checked(running.test)
                self._checks.end()
            if told:
                self._tell_end_of(running)
        elif running.errors:
            self._leave_to(stack, result, running.errors[0])

    def _leave_to(self, stack: list[_Running], result: Any, error: BaseException | str) -> None:
        """Let the test around be asked for what went wrong inside, where it holds the result of that."""
        if isinstance(result, getattr(sys.modules.get("unittest.result"), "TestResult", ())):
            pending = Pending(f"a unittest failed that the test runs, and nobody looked at its result: {_said(error)}")
            (stack[-1].pending if stack else self._checks.now.pending).append(pending)
            result.__dict__.setdefault(_PENDING, []).append(pending)

    def _tell_begin(self, id_: str) -> None:
        if self._session is not None and not self._session.is_own:  # in a child, where nobody would give the lock back
            self._session, self._known, self._lock = None, set(), allocate_lock()
        with self._lock:
            if self._session is None:
                self._session = Events(moved_up(file_of_its_own(self._folder, RUNNER)))
                self._session.hold("start", runner=RUNNER, optimize=sys.flags.optimize, bare=self._is_bare)
            if id_ not in self._known:
                self._known.add(id_)
                self._session.hold("collected", ids=[id_])
                self._session.hold("selected", ids=[id_])
            self._session.send("phase", id=id_, when="setup", outcome="passed")

    def _tell_end_of(self, running: _Running) -> None:
        if self._session is None or not self._session.is_own:
            return
        details: dict[str, object] = {"outcome": "passed"}
        if running.errors:
            details = {"outcome": "failed", **self._why(running.errors[0])}
        elif running.skipped is not None:
            details = {"outcome": "skipped", "reason": running.skipped}
        elif running.expects:
            outcome = "skipped" if running.failed_as_expected else "passed"
            details = {"outcome": outcome, "xfail": "expected to fail"}
        with self._lock:
            self._session.hold("phase", id=running.id, when="call", **details)
            self._session.send("phase", id=running.id, when="teardown", outcome="passed", checks=running.checks)

    def _why(self, error: BaseException | str) -> dict[str, object]:
        from .why import of_error

        told = None if isinstance(error, str) else of_error(error, self._checks.tree[:-1])
        return {"reason": _said(error), "why": told} if told else {"reason": _said(error)}

    # --- unittest ---

    def _watch_cases(self, case: Any) -> None:
        run, execute, call = case.TestCase.run, case._Outcome.testPartExecutor, case.TestCase._callTestMethod

        @wraps(run)
        def watched(test: Any, result: Any = None) -> Any:
            self._unittests.begin(test, is_inside=self._is_inside(self._stacks.get(get_ident(), [])))
            running = self._begin(test.id(), test)
            method = getattr(test, getattr(test, "_testMethodName", ""), None)
            for of in (method, type(test)):
                running.expects |= bool(getattr(of, "__unittest_expecting_failure__", False))
                if getattr(of, "__unittest_skip__", False):
                    running.skipped = str(getattr(of, "__unittest_skip_why__", ""))
            try:
                result = run(test, result) or result
                return result
            finally:
                self._end(running, result)

        def executor(outcome: Any, *args: Any, **kwargs: Any) -> Any:
            stack = self._stacks.get(get_ident())
            inner = execute(outcome, *args, **kwargs)
            return _Part(inner, stack[-1], outcome) if stack else inner

        def called(test: Any, method: Any) -> Any:
            @wraps(method)
            def looked_at(*args: Any, **kwargs: Any) -> Any:
                value = method(*args, **kwargs)
                why = returned(value)
                stack = self._stacks.get(get_ident())
                if why and stack:
                    stack[-1].errors.append(why)
                return value

            return call(test, looked_at)

        case.TestCase.run, case._Outcome.testPartExecutor, case.TestCase._callTestMethod = watched, executor, called

    def _watch_suites(self, suite: Any) -> None:
        """What fails before the tests of a class or a module is told as a test of its name."""
        add = suite.TestSuite._addClassOrModuleLevelException

        def watched(own: Any, result: Any, error: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            self._unittests.cannot_begin(name)
            running = self._begin(name, None)
            running.raised(error)
            try:
                return add(own, result, error, name, *args, **kwargs)
            finally:
                self._end(running, result)

        suite.TestSuite._addClassOrModuleLevelException = watched

    def _watch_results(self, results: Any) -> None:
        """Whoever asks a result whether all went well has seen what did not; unittest's own runner prints it only."""
        ask = results.TestResult.wasSuccessful

        @wraps(ask)
        def asked(result: Any) -> Any:
            _note_asked(result, _getframe(1))
            return ask(result)

        results.TestResult.wasSuccessful = asked
        for name in ("failures", "errors"):
            setattr(results.TestResult, name, _told_when_asked(name))

    # --- doctest ---

    def _watch_doctest(self, doctest: Any) -> None:
        run = doctest.DocTestRunner.run

        @wraps(run)
        def watched(runner: Any, test: Any, *args: Any, **kwargs: Any) -> Any:
            running = self._begin(f"doctest {test.name}", test, told=False)
            attempted = 1
            try:
                found = run(runner, test, *args, **kwargs)
                attempted = found.attempted - getattr(found, "skipped", 0)  # which some versions count
                if not attempted and test.examples:
                    running.skipped, attempted = f"all examples of {test.name} are skipped", 1
                if found.failed:
                    running.errors.append(f"{found.failed} of {found.attempted} examples of {test.name} failed")
                return found
            except BaseException as error:  # of a runner that ends with the first failure
                running.raised(error)
                raise
            finally:
                self._end_doctest(running, told=bool(attempted))

        doctest.DocTestRunner.run = watched

    def _end_doctest(self, running: _Running, *, told: bool) -> None:
        """Tell of one with examples. One that a test has run, and whose results a statement of the tree drops, is that
        test's failure.
        """
        if len(self._stacks[get_ident()]) > 1 or self._test_around() is not None:
            frame: Any = _getframe(2)
            while frame is not None and is_of(frame, "doctest"):
                frame = frame.f_back
            is_ours = frame is not None and frame.f_code.co_filename.startswith(self._checks.tree)
            if running.errors and isinstance(running.errors[0], str) and is_ours and drops_result(frame):
                self._checks.now.lost.append(f"{running.errors[0]}, and nobody looked at it")
        elif told:
            self._tell_begin(running.id)
        self._end(running, told=told)

    # --- trial ---

    def _watch_trial(self, reporter: Any) -> None:
        """Its tests are run by themselves, and tell a result of its own."""
        results = reporter.TestResult

        def watch(name: str, note: Callable[..., None]) -> None:
            method = getattr(results, name)

            @wraps(method)
            def watched(result: Any, test: Any, *args: Any, **kwargs: Any) -> Any:
                if name == "startTest" or current(test) is not None:
                    note(test, *args, **kwargs)
                return method(result, test, *args, **kwargs)

            setattr(results, name, watched)

        def current(test: Any) -> Any:
            return next((r for r in reversed(self._stacks.get(get_ident(), ())) if r.test is test), None)

        def start(test: Any) -> None:
            if current(test) is None:  # else it is one of unittest's own
                self._begin(test.id(), test).is_trials = True

        def failed(test: Any, failure: Any, *_: Any) -> None:
            error = failure[1] if isinstance(failure, tuple) else getattr(failure, "value", failure)
            current(test).errors.append(error if isinstance(error, BaseException) else str(error))

        def skipped(test: Any, reason: Any) -> None:
            current(test).skipped = str(reason)

        def expected(test: Any, *_: Any) -> None:
            current(test).expects = current(test).failed_as_expected = True

        def unexpected(test: Any, *_: Any) -> None:
            current(test).expects = True

        def stop(test: Any) -> None:
            if current(test).is_trials:
                self._end(current(test))

        watch("startTest", start)
        watch("addError", failed)
        watch("addFailure", failed)
        watch("addSkip", skipped)
        watch("addExpectedFailure", expected)
        watch("addUnexpectedSuccess", unexpected)
        watch("stopTest", stop)


class _Part:
    """A part of a unittest (its setup, itself, a subtest ...): notes what is raised in it, which unittest keeps."""

    def __init__(self, inner: Any, running: _Running, outcome: Any) -> None:
        self._inner = inner
        self._running = running
        self._outcome = outcome

    def __enter__(self) -> Any:
        return self._inner.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        if error is not None:
            self._running.raised(error, expected=bool(self._outcome.expecting_failure))
        return self._inner.__exit__(kind, error, traceback)


_PENDING = "_nsa_pod_pending"


def _note_asked(result: Any, frame: FrameType) -> None:
    if not is_of(frame, "unittest"):
        for pending in result.__dict__.get(_PENDING, ()):
            pending.retrieved = True


def _told_when_asked(name: str) -> Any:
    def get(result: Any) -> Any:
        _note_asked(result, _getframe(1))
        try:
            return result.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None

    return property(get, lambda result, value: result.__dict__.__setitem__(name, value))


def _said(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    first = str(error).strip().partition("\n")[0][:300]
    return f"{type(error).__name__}: {first}".rstrip(": ")
