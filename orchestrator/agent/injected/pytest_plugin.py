"""Tells the agent every outcome of a pytest session as it happens, one JSON object a line; `outcomes.py` reads them.

For pytest 7 and later, also under pytest-xdist. The session that is the stage's own has a pipe to the agent; any other
writes into a file of its own.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Generator, Sequence, TypeVar
from unittest import SkipTest

import pytest

from .checks.blind import ONE, OTHER, blind_comparisons
from .checks.made_files import MadeFiles
from .runners import junit
from .runners.events import Events, file_of_its_own
from .runners.handed import hands_nothing, is_taken
from .runners.items import Names
from .runners.parameters import are_read_by_hooks, same_cases
from .runners.reports import CALLED, CHECKS, NAME, RAISED, WHY, details_of, failure, skip_reason
from .runners.set_aside import set_aside
from .runners.switched_cases import switched_cases
from .runners.why import why
from .runners.written import NO_TESTS_IN, code_of, ignored, not_collected
from .sabotage.attempt import Attempt, Stop, noticed_in, quickest
from .sabotage.times import Times
from .stage import TEST_VARIABLE, encoded, known_test, test_around

if TYPE_CHECKING:
    from .guard import Guard

_guard: Guard
"""Of this process: it brings the plugin into each session."""
_Hook = TypeVar("_Hook", bound=Callable[..., Any])
Wrapper = Generator[None, Any, Any]
"""What looks on at a hook."""
FD_VARIABLE = "NSA_POD_PYTEST_FD"
_WORKER_KEY = "nsa_pod"
# On each item: whether its call passed.
_PASSED = "nsa_pod_passed"
# On each collection's report: its outcome and how much it holds, as pytest itself had made it.
_COLLECTED = "nsa_pod_collected"
# Among the checks of a test that ran in a fork: what its session does not see.
_ASSERTIONS = "assertions"
# On each item: the code that was collected, whatever a hook or a fixture puts in its place later.
_WRITTEN = "nsa_pod_written"
# Of pluggy's two styles the old one takes twice as long, and before 1.2 there is no other.
_IS_NEW_STYLE = "wrapper" in inspect.signature(pytest.hookimpl).parameters


def brought_by(guard: Guard) -> None:
    global _guard
    _guard = guard


def _wrapping(**order: bool) -> Callable[[_Hook], _Hook]:
    return pytest.hookimpl(**order, **{"wrapper" if _IS_NEW_STYLE else "hookwrapper": True})  # type: ignore[call-overload, no-any-return, unused-ignore]


def _result_of(given: Any) -> Any:
    """A hook's result, of what its wrapper is given in either style; the new one returns it, too."""
    return given if _IS_NEW_STYLE else given.get_result()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """A conftest.py above the tree is none of a session of the tree's, in whichever folder of it that begins."""
    known = early_config.known_args_namespace
    if test_around() is None and not _is_outside(early_config) and not _is_in_tree(known.confcutdir or os.sep):
        known.confcutdir = _guard.config.one("tree")
    early_config.pluginmanager.register(Named(), "nsa-pod-named")


class Named:
    """What a session was asked for, by its command or its ini file, before a conftest makes something else of it."""

    targets: Sequence[str] = ()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self.targets = tuple(map(str, config.args))


def pytest_configure(config: pytest.Config) -> None:
    if test_around() is None:
        told = _guard.config
        for tests in told.all("attempt"):
            noticed = noticed_in(told.all("noticed"))
            rank = quickest(told.one("durations"))
            times = Times(_guard.checks.facts)
            attempt = Attempt(_guard.notes, str(config.rootpath), tests, rank, noticed, times)
            config.pluginmanager.register(attempt, "nsa-pod-attempt")
            config.pluginmanager.register(Stop(config, noticed), "nsa-pod-stop")
    if hasattr(config, "workerinput"):  # under xdist the controller reports; its workers tell it what only they see
        notes: list[dict[str, object]] = []
        config.workeroutput[_WORKER_KEY] = notes  # type: ignore[attr-defined]
        collection = Collection(lambda event, **fields: notes.append({"event": event, **fields}))
        config.pluginmanager.register(collection, "nsa-pod-collection")
        return
    pipe = os.environ.pop(FD_VARIABLE, None)
    inside = test_around()
    outside = _is_outside(config) if inside is None else _is_of_elsewhere(config)
    if pipe is None and inside is not None and outside:  # a test of a plugin, say: what runs in it proves nothing
        return
    tree = Path(_guard.config.one("tree"))
    prefix = f"{tree.name}/" if config.rootpath == tree.parent else ""  # a repository without a configuration
    fd = file_of_its_own(_guard.config.one("sessions")) if pipe is None else int(pipe)
    bare = inside is None and _guard.origin.is_bare
    reporter = Reporter(fd, inside=inside, outside=outside, prefix=prefix, bare=bare)
    config.pluginmanager.register(reporter, "nsa-pod-reporter")
    config.pluginmanager.register(Collection(reporter.send), "nsa-pod-collection")
    # By an ini file: the stage owes its results all the same.
    if pipe is not None and config.pluginmanager.is_blocked("junitxml"):
        sys.modules["_pytest.junitxml"].pytest_configure(config)
    elsewhere = pipe is not None and junit.asked_for(config)
    if elsewhere:
        config.add_cleanup(functools.partial(junit.copy, config.option.xmlpath, elsewhere))
    config.add_cleanup(reporter.send_lost)  # after that of pytest's own plugins, which were configured before


def _is_outside(config: pytest.Config) -> bool:
    """Whether a session has nothing to do with the tree."""
    return not any(map(_is_in_tree, (config.rootpath, config.invocation_params.dir)))


def _is_of_elsewhere(config: pytest.Config) -> bool:
    """Whether all that a session collects lies elsewhere, wherever it has begun."""
    begins = config.invocation_params.dir
    named = [os.path.join(begins, str(argument).partition("::")[0]) for argument in config.args]
    return not any(map(_is_in_tree, (str(config.rootpath), *(named or [str(begins)]))))


def _is_in_tree(place: str | os.PathLike[str]) -> bool:
    return (os.path.realpath(place) + os.sep).startswith(_guard.config.one("tree") + os.sep)


def _from_the_root(targets: list[str], config: pytest.Config) -> list[str]:
    """Files and folders of a session that begins in a folder, named as its tests are."""
    begins = os.path.relpath(os.path.realpath(config.invocation_params.dir), os.path.realpath(config.rootpath))
    return [target if begins == os.curdir else os.path.join(begins, target) for target in targets]


@_wrapping(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Wrapper:
    """Note what was raised beside what is reported: other hooks may make something else of it."""
    if call.when == "call":
        _guard.look_at_kernels(getattr(item, "function", None))
    before = call.excinfo
    report = _result_of((yield))
    excinfo = before or call.excinfo
    state = item.__dict__
    if excinfo is not None and not excinfo.errisinstance((pytest.skip.Exception, SkipTest)):
        state.setdefault(RAISED, []).append(excinfo.typename)
    elif call.when == "call" and state.get(CALLED):
        state.setdefault(RAISED, []).append(state[CALLED])
    if excinfo is not None:
        _explain(report, excinfo)
    if NAME in state:
        setattr(report, NAME, state[NAME])
    if RAISED in state:
        setattr(report, RAISED, list(state[RAISED]))
    if call.when == "call":
        state[_PASSED] = report.passed
        setattr(report, CALLED, CALLED in state or not _calls_function(item))
    elif call.when == "teardown":
        setattr(report, CHECKS, _checks(item))
    return report


def _name_of(item: pytest.Item) -> str:
    return str(item.__dict__.get(NAME) or item.nodeid)


def _explain(report: pytest.TestReport | pytest.CollectReport, excinfo: Any) -> None:
    if excinfo is not None and report.failed:
        setattr(report, WHY, why(excinfo.value, report, _guard.config.one("tree")))


def _checks(item: pytest.Item) -> dict[str, object]:
    """How many checks ran that could fail, or why none of those that ran could; what was lost; whether all that the
    test holds is `idle`: what of this there is. Of an item that is no function nothing is known but what was lost.
    """
    checks = _guard.checks
    record = checks.now
    checks.add_told(record)
    found: dict[str, object] = {}
    lost = record.failures()
    if lost:
        found["lost"] = lost
    code = item.__dict__.get(_WRITTEN) or code_of(item)
    facts = checks.facts.get(code.co_filename) if code is not None else None
    if code is not None and facts is not None:
        found.update(checks.found(code, lambda: (getattr(item, "function", None), getattr(item, "cls", None))))
        checks.note_due(code, passed=item.__dict__.get(_PASSED, False))
        if checks.due.is_forked:
            found[_ASSERTIONS] = checks.due.told()
    return found


def _calls_function(item: pytest.Item) -> bool:
    """Whether pytest itself calls the item's function: not that of a unittest or a coroutine."""
    if not isinstance(item, pytest.Function) or type(item).runtest is not pytest.Function.runtest:
        return False
    return not inspect.iscoroutinefunction(item.obj)


@_wrapping(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Wrapper:
    id_ = item.nodeid
    _guard.checks.begin(id_)
    is_outermost = _guard.begin_test(id_)
    if is_outermost:
        os.environ[TEST_VARIABLE] = id_
        known_test.append(id_)
    try:
        return (yield)
    finally:
        if is_outermost:
            known_test.clear()
            _forget_variable()
        _guard.checks.end()
        _guard.note_test(id_)


@_wrapping(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Wrapper:
    before = _guard.launched
    given = yield
    if _guard.launched > before:
        result = fixturedef.cached_result
        arguments = {name: request.getfixturevalue(name) for name in fixturedef.argnames}
        if result and result[2] is None and hands_nothing(fixturedef.func, arguments):
            users = _users(request, fixturedef.argname)
            seen = is_taken(fixturedef.argname, users) or are_read_by_hooks(request.config, _guard.config.one("tree"))
            if result[0] is None or not seen:
                _guard.note_aside(before)
    return given


def _users(request: Any, name: str) -> list[Any]:
    """The tests that a fixture is set up for: who asks for it now, be it while it runs, and who names it."""
    items = [] if request.scope == "function" else request.session.items
    return [request._pyfuncitem, *(item for item in items if name in getattr(item, "fixturenames", [name]))]


def _forget_variable() -> None:
    try:
        del os.environ[TEST_VARIABLE]
    except KeyError:  # the test has; to look first takes as long again
        return


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Have those hooks that call a test's function tell of it, inside all that only look on."""
    tree = _guard.checks.tree
    if test_around() is None:
        _note_cases(session.items, tree)
    for impl in session.config.hook.pytest_pyfunc_call.get_hookimpls():
        only_looks = getattr(impl, "hookwrapper", False) or getattr(impl, "wrapper", False)
        if impl.function.__module__ == "_pytest.python":
            impl.function = _watched(impl.function)  # type: ignore[misc, unused-ignore]
        elif not only_looks and "pyfuncitem" in impl.argnames:
            code = getattr(inspect.unwrap(impl.function), "__code__", None)
            is_ours = code is None or code.co_filename.startswith(tree)
            impl.function = _claiming(impl.function, is_ours=is_ours)  # type: ignore[misc, unused-ignore]


def _note_cases(items: list[pytest.Item], tree: str) -> None:
    for ask in (same_cases, switched_cases, set_aside):
        with contextlib.suppress(Exception):  # of items that are no functions of pytest's own
            for said in ask(items, tree):
                _guard.notes.add(doubt=said)


def _watched(call: Callable[..., Any]) -> Callable[..., Any]:
    """Pytest's own call of the function, which tells what that has raised."""

    def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
        pyfuncitem.__dict__[CALLED] = ""
        return _noting_raised(pyfuncitem.__dict__, call, pyfuncitem)

    return pytest_pyfunc_call


def _noting_raised(state: dict[str, Any], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    try:
        return call(*args, **kwargs)
    except (pytest.skip.Exception, SkipTest):
        raise
    except BaseException as error:
        state[CALLED] = type(error).__name__
        raise


def _claiming(call: Callable[..., Any], *, is_ours: bool) -> Callable[..., Any]:
    """A hook that may call the function in pytest's place, and says so. Of one of the tree's own, the function itself
    tells that it was called.
    """

    def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
        if not is_ours or not _calls_function(pyfuncitem):
            claimed = call(pyfuncitem)
            if claimed is not None:
                pyfuncitem.__dict__.setdefault(CALLED, "")
            return claimed
        function = pyfuncitem.obj
        pyfuncitem.obj = _telling(function, pyfuncitem.__dict__)
        try:
            return call(pyfuncitem)
        finally:
            pyfuncitem.obj = function

    return pytest_pyfunc_call


def _telling(function: Callable[..., Any], state: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        state.setdefault(CALLED, "")
        return _noting_raised(state, function, *args, **kwargs)

    return call


@_wrapping(trylast=True)
def pytest_make_collect_report() -> Wrapper:
    """Note what was collected beside what is reported, as for a test."""
    report = _result_of((yield))
    _explain(report, report.call.excinfo if hasattr(report, "call") else None)
    setattr(report, _COLLECTED, _extent(report) if hasattr(report, "call") else None)
    return report


def _extent(report: pytest.CollectReport) -> tuple[str, int]:
    return report.outcome, len(report.result or ())


@functools.lru_cache(maxsize=8)
def _text(value: str) -> str:
    """As JSON: a test's id, and words, of which each is asked for again and again."""
    return "".join(encoded(value, 0))


class Reporter(Events):
    """Sends the events of this process's session; `about` it, beside what pytest knows, is told first."""

    def __init__(self, fd: int, **about: object) -> None:
        super().__init__(fd)
        self._about = about
        self._told_by_worker: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        option = session.config.option
        self.send(
            "start",
            pytest=pytest.__version__,
            args=list(session.config.invocation_params.args),
            targets=[] if option.pyargs else _from_the_root(option.file_or_dir, session.config),
            optimize=sys.flags.optimize,
            only_collects=option.collectonly,
            **self._about,
        )

    def send_lost(self) -> None:
        """What was lost outside of any test, when no more can be: in a thread that outlived the last one."""
        reasons = _guard.checks.now.failures()
        if reasons:
            self.send("lost", reasons=reasons)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.send("collect_error", id=report.nodeid, **failure(report))
        elif report.skipped:
            self.send("collect_skip", id=report.nodeid, reason=skip_reason(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        when, outcome, more = report.when, report.outcome, ""
        details = details_of(report, when, outcome)
        if details:
            of_fork = details.get("checks", {}).pop(_ASSERTIONS, None)
            if of_fork:
                self.send("assertions", **of_fork)
            more = ", " + "".join(encoded(details, 0))[1:-1]
        seconds = int(report.duration * 1e4) / 1e4  # to round it takes as long as to write it down
        name = getattr(report, NAME, report.nodeid)
        known = f'"id": {_text(name)}, "when": {_text(when)}, "outcome": {_text(outcome)}'
        self.hold_text(f'{{"event": "phase", {known}, "seconds": {seconds}{more}}}')
        if when == "setup" or outcome == "failed":  # known if the process dies
            self.flush()

    def pytest_internalerror(self, excrepr: object) -> None:
        self.send("interrupted", reason="internal error: " + str(excrepr).strip().rpartition("\n")[2])

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.send("interrupted", reason=f"{excinfo.typename}: {excinfo.value}")

    @_wrapping(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Wrapper:
        try:
            return (yield)
        finally:
            _guard.note_all()  # now, because a session may end the process without its exit functions
            self.send("end", status=int(session.exitstatus))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if self._is_first("scheduled"):
            self.send("scheduled", ids=list(ids))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        notes = getattr(node, "workeroutput", {}).get(_WORKER_KEY)
        if notes is not None:  # each has collected the same
            first = self._is_first("notes")
            for note in notes:
                if first or note["event"] == "assertions":
                    self.send(**note)

    def _is_first(self, what: str) -> bool:
        """Whether no worker has told this yet; xdist itself refuses workers that collected different tests."""
        first = what not in self._told_by_worker
        self._told_by_worker.add(what)
        return first


class Collection:
    """Tells what the process collects. Under xdist only the workers do, and they all collect the same."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._said: set[str] = set()
        self._ignored: list[Path] = []
        self._names = Names()
        self._made = MadeFiles(_guard.checks.tree)
        _guard.when(self._made.looks)

    @_wrapping(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> Wrapper:
        is_ignored = _result_of((yield))
        if is_ignored and _may_hold_tests(collection_path, config.getini("python_files")):
            self._said.add(os.path.relpath(collection_path, config.rootpath))
            self._ignored.append(collection_path)
        return is_ignored

    @_wrapping(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Wrapper:
        """A node's id leads to its file only below pytest's root."""
        report = _result_of((yield))
        if not report.passed and not isinstance(collector, pytest.Class):
            self._said.add(os.path.relpath(collector.path, collector.config.rootpath))
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if getattr(report, _COLLECTED, None) != _extent(report):
            self._tell("collect_error", id=report.nodeid, reason="what pytest had collected was replaced by a hook")

    @_wrapping(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> Wrapper:
        self._note(items)
        place = _guard.checks.marking.place_in_tree
        for path in ignored(session, items, place, self._ignored) if self._ignored else ():
            self._tell("ignored", ids=[os.path.relpath(path, session.config.rootpath)])
        missing = list(not_collected(session, items, place, self._said))
        if missing:
            self._tell("not_collected", ids=missing)
        result = yield
        added = [item for item in items if _WRITTEN not in item.__dict__]
        if added:  # by another hook
            self._note(added)
        return result

    def _note(self, items: list[pytest.Item]) -> None:
        for item in items:
            name = self._names.of(item)
            if name != item.nodeid:
                item.__dict__[NAME] = name
            item.__dict__[_WRITTEN] = code_of(item)
        self._tell("collected", ids=[_name_of(item) for item in items])
        if test_around() is None:
            _guard.note_test_files(map(str, {item.path for item in items}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        files = {item.path for item in getattr(session, "items", ())}
        for said in self._made.told({str(file.parent) for file in files}) if test_around() is None else ():
            _guard.notes.add(doubt=said)
        for name in blind_comparisons(_guard.checks.used):
            _guard.notes.add(doubt=f"{name} does not fail for {ONE:g} and {OTHER:g}: something of it was replaced")
        told = _guard.checks.due.told()
        if told:
            self._tell("assertions", **told)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._tell("deselected", ids=[_name_of(item) for item in items])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._tell("selected", ids=[_name_of(item) for item in session.items])


def _may_hold_tests(path: Path, patterns: list[str]) -> bool:
    if not path.is_dir():
        return any(fnmatch(path.name, pattern) for pattern in patterns)
    expected = not any(fnmatch(path.name, pattern) for pattern in NO_TESTS_IN)
    return expected and any(found for pattern in patterns for found in path.rglob(pattern))
