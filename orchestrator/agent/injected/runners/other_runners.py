"""Tests that run outside pytest: unittest's, and with them those of nose2 and absl; trial's; doctest's.

They are seen where they run, whatever becomes of their results, and told as pytest's are. One that runs inside another
test is that test's affair: its failure is lost only if nobody asks the result for it.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock, get_ident
from sys import _getframe  # bound here, as in `hooks`

from ..checks.pending import Pending, hold, retrieve
from ..frames import drops_result, is_of, outside
from ..hooks import Attribute, as_named, compile_by, replace, watch
from .events import Events, file_of_its_own
from .examples import left_out
from .unittests import Unittests, returned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, ModuleType
    from typing import Any, Callable

    from ..checks.records import Checks
    from ..stage import Config

RUNNER = "unittest"
__unittest = True  # its tracebacks leave out what it calls a test through
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
    that they run without the stage's environment variables; `look` is told of each function of a test that was called.
    """

    def __init__(
        self,
        config: Config,
        checks: Checks,
        test_around: Callable[[], str | None],
        look: Callable[[object], None],
        *,
        is_bare: bool,
    ) -> None:
        self._folder = config.one("sessions")
        self._checks = checks
        self._test_around = test_around
        self._look = look
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
        compile_by(_calling_doctest)

    def tell(self) -> None:
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
        running.errors += [pending.sentence for pending in running.pending if pending.is_lost]
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
            hold(pending, result)

    def _tell_begin(self, id_: str) -> None:
        if self._session is not None and not self._session.is_own:  # in a child, where nobody would give the lock back
            self._session, self._known, self._lock = None, set(), allocate_lock()
        with self._lock:
            if self._session is None:
                self._session = Events(file_of_its_own(self._folder, RUNNER))
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
        replace(case.TestCase, "run", self._watch_run)
        replace(case._Outcome, "testPartExecutor", self._watch_parts)
        replace(case.TestCase, "_callTestMethod", self._watch_method)

    def _watch_run(self, run: Callable[..., Any]) -> Callable[..., Any]:
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

        return watched

    def _watch_parts(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        def executor(outcome: Any, *args: Any, **kwargs: Any) -> Any:
            stack = self._stacks.get(get_ident())
            inner = execute(outcome, *args, **kwargs)
            return _Part(inner, stack[-1], outcome) if stack else inner

        return executor

    def _watch_method(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(test: Any, method: Any) -> Any:
            def looked_at(*args: Any, **kwargs: Any) -> Any:
                value = method(*args, **kwargs)
                self._look(getattr(method, "__func__", method))
                why, stack = returned(value), self._stacks.get(get_ident())
                if why and stack:
                    stack[-1].errors.append(why)
                return value

            return call(test, as_named(looked_at, method))

        return called

    def _watch_suites(self, suite: Any) -> None:
        """What fails before the tests of a class or a module is told as a test of its name."""
        watch(suite.TestSuite, "_addClassOrModuleLevelException", after=self._cannot_begin)

    def _cannot_begin(
        self, frame: FrameType, _: None, suite: Any, result: Any, error: BaseException, name: str, *__: Any, **___: Any
    ) -> None:
        self._unittests.cannot_begin(name)
        running = self._begin(name, None)
        running.raised(error)
        self._end(running, result)

    def _watch_results(self, results: Any) -> None:
        """Whoever asks a result whether all went well has seen what did not; unittest's own runner prints it only."""
        watch(results.TestResult, "wasSuccessful", before=_note_asked)
        for name in ("failures", "errors"):
            setattr(results.TestResult, name, Attribute(name, _note_asked))

    # --- doctest ---

    def _watch_doctest(self, doctest: Any) -> None:
        runner = doctest.DocTestRunner
        watch(
            runner, "run", before=self._begin_doctest, after=self._has_run_doctest, failed=self._has_raised_in_doctest
        )

    def _begin_doctest(self, frame: FrameType, runner: Any, test: Any, *_: Any, **__: Any) -> None:
        self._begin(f"doctest {test.name}", test, told=False)

    def _has_run_doctest(self, frame: FrameType, found: Any, runner: Any, test: Any, *_: Any, **__: Any) -> None:
        running = self._stacks[get_ident()][-1]
        attempted = found.attempted - getattr(found, "skipped", 0)  # which some versions count
        if not attempted and test.examples:
            running.skipped = f"all examples of {test.name} are skipped"
        if found.failed:
            running.errors.append(f"{found.failed} of {found.attempted} examples of {test.name} failed")
        self._end_doctest(running, frame, told=bool(test.examples))

    def _has_raised_in_doctest(self, frame: FrameType, error: BaseException, *_: Any, **__: Any) -> None:
        """A runner that ends with the first failure."""
        running = self._stacks[get_ident()][-1]
        running.raised(error)
        self._end_doctest(running, frame, told=True)

    def _end_doctest(self, running: _Running, frame: FrameType | None, *, told: bool) -> None:
        """Tell of one with examples. One that a test has run, and whose results a statement of the tree drops, is that
        test's failure.
        """
        if len(self._stacks[get_ident()]) > 1 or self._test_around() is not None:
            frame = outside(frame, "doctest")
            is_ours = frame is not None and self._checks.is_ours(frame.f_code.co_filename)
            if running.errors and isinstance(running.errors[0], str) and frame and is_ours and drops_result(frame):
                self._checks.now.lost.append(f"{running.errors[0]}, and nobody looked at it")
        elif told:
            self._tell_begin(running.id)
            for example in left_out(running.id, running.test):
                self._checks.doubt(f"an example did not run: {example}")
        self._end(running, told=told)

    # --- trial ---

    def _watch_trial(self, reporter: Any) -> None:
        """Its tests are run by themselves, and tell a result of its own."""
        notes: dict[str, Callable[..., None]] = {
            "startTest": self._trial_starts,
            "addError": self._trial_failed,
            "addFailure": self._trial_failed,
            "addSkip": self._trial_skipped,
            "addExpectedFailure": self._trial_expected,
            "addUnexpectedSuccess": self._trial_unexpected,
            "stopTest": self._trial_stops,
        }
        for name, note in notes.items():
            watch(reporter.TestResult, name, before=note)

    def _of_trial(self, test: object) -> _Running:
        """What has begun of a test; of another's test nothing is told."""
        begun = (running for running in reversed(self._stacks.get(get_ident(), ())) if running.test is test)
        return next(begun, _Running("", test))

    def _trial_starts(self, frame: FrameType, result: Any, test: Any) -> None:
        if not self._of_trial(test).id:  # else it is one of unittest's own
            self._begin(test.id(), test).is_trials = True

    def _trial_failed(self, frame: FrameType, result: Any, test: Any, failure: Any, *_: Any) -> None:
        error = failure[1] if isinstance(failure, tuple) else getattr(failure, "value", failure)
        self._of_trial(test).errors.append(error if isinstance(error, BaseException) else str(error))

    def _trial_skipped(self, frame: FrameType, result: Any, test: Any, reason: Any) -> None:
        self._of_trial(test).skipped = str(reason)

    def _trial_expected(self, frame: FrameType, result: Any, test: Any, *_: Any) -> None:
        running = self._of_trial(test)
        running.expects = running.failed_as_expected = True

    def _trial_unexpected(self, frame: FrameType, result: Any, test: Any, *_: Any) -> None:
        self._of_trial(test).expects = True

    def _trial_stops(self, frame: FrameType, result: Any, test: Any) -> None:
        running = self._of_trial(test)
        if running.is_trials:
            self._end(running)


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


def _calling_doctest(loader: Any, name: str) -> CodeType | None:
    """`python -m doctest` runs the module's text under another name: have it call the module, which is watched."""
    asks = outside(_getframe()) if name == "doctest" else None
    is_program = asks is not None and is_of(asks, "runpy")
    return compile(_DOCTEST, loader.path, "exec", dont_inherit=True) if is_program else None


def _note_asked(frame: FrameType, result: Any, *_: Any) -> None:
    if not is_of(frame, "unittest"):
        retrieve(result)


def _said(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    first = str(error).strip().partition("\n")[0][:300]
    return f"{type(error).__name__}: {first}".rstrip(": ")
