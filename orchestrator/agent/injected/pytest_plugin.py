"""Tells the agent every outcome of a pytest session as it happens, one JSON object a line; `outcomes.py` reads them.

For pytest 7 and later, also under pytest-xdist. The session that is the stage's own has a pipe to the agent; any other
writes into a file of its own.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
import warnings
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Callable, Iterator
from unittest import SkipTest

import pytest

from . import guard as guards

FD_VARIABLE = "NSA_POD_PYTEST_FD"
_WORKER_KEY = "nsa_pod"
# On each report: what the item has raised so far, in every phase and attempt; whether the test itself was called.
_RAISED, _CALLED = "nsa_pod_raised", "nsa_pod_called"
# On each collection's report: its outcome and how much it holds, as pytest itself had made it.
_COLLECTED = "nsa_pod_collected"
# pytest's default `norecursedirs`: where nobody expects the commit's tests.
_NO_TESTS_IN = ("*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}", "__pycache__")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # under xdist the controller reports; its workers tell it what only they see
        notes: list[dict[str, object]] = []
        config.workeroutput[_WORKER_KEY] = notes  # type: ignore[attr-defined]
        collection = Collection(lambda event, **fields: notes.append({"event": event, **fields}))
        config.pluginmanager.register(collection, "nsa-pod-collection")
        return
    own = os.environ.pop(FD_VARIABLE, None)
    reporter = Reporter(_own_file() if own is None else int(own))
    config.pluginmanager.register(reporter, "nsa-pod-reporter")
    config.pluginmanager.register(Collection(reporter.send), "nsa-pod-collection")
    reporter.send(
        "start",
        pytest=pytest.__version__,
        args=list(config.invocation_params.args),
        targets=[] if config.option.pyargs else list(config.option.file_or_dir),
        optimize=sys.flags.optimize,
        rootdir=str(config.rootpath),
        inside=guards.test_around(),
    )


def _own_file() -> int:
    """Of a session that another program, or a test, has started."""
    folder = guards.installed().config.one("sessions")
    os.makedirs(folder, exist_ok=True)
    name = f"{time.time_ns()}-{os.urandom(4).hex()}.jsonl"
    return os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note what was raised beside what is reported: other hooks may make something else of it."""
    before = call.excinfo
    result: Any = yield  # the hook's result
    excinfo = before or call.excinfo
    raised: list[str] = item.__dict__.setdefault(_RAISED, [])
    by_the_test = item.__dict__.get(_CALLED, None if _calls_function(item) else "")
    if excinfo is not None and not excinfo.errisinstance((pytest.skip.Exception, SkipTest)):
        raised.append(excinfo.typename)
    elif call.when == "call" and by_the_test:
        raised.append(by_the_test)
    setattr(result.get_result(), _RAISED, list(raised))
    setattr(result.get_result(), _CALLED, by_the_test is not None)


def _calls_function(item: pytest.Item) -> bool:
    """Whether pytest itself calls the item's function: not that of a unittest or a coroutine."""
    if not isinstance(item, pytest.Function) or type(item).runtest is not pytest.Function.runtest:
        return False
    return not inspect.iscoroutinefunction(item.obj)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    guards.installed().begin_test(item.nodeid)
    yield
    guards.installed().note_test(item.nodeid)


@pytest.hookimpl(specname="pytest_pyfunc_call")
def pytest_pyfunc_call_begins(pyfuncitem: pytest.Function) -> None:
    """After all hooks that may call the function in pytest's place, and before pytest's own."""
    pyfuncitem.__dict__[_CALLED] = ""
    if hasattr(pytest, "PytestReturnNotNoneWarning"):  # `return a == b` checks nothing; a test's filters end with it
        warnings.simplefilter("error", pytest.PytestReturnNotNoneWarning)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Inside all wrappers, which may swallow it: note what the test has raised."""
    result: Any = yield
    excinfo = result.excinfo
    if excinfo is not None and not issubclass(excinfo[0], (pytest.skip.Exception, SkipTest)):
        pyfuncitem.__dict__[_CALLED] = excinfo[0].__name__


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Note what was collected beside what is reported, as for a test."""
    result: Any = yield
    report = result.get_result()
    setattr(report, _COLLECTED, _extent(report) if hasattr(report, "call") else None)


def _extent(report: pytest.CollectReport) -> tuple[str, int]:
    return report.outcome, len(report.result or ())


class Reporter:
    """Sends the events of this process's session."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._pid = os.getpid()
        self._told_by_worker: set[str] = set()

    def send(self, event: str, **fields: Any) -> None:
        if os.getpid() != self._pid:  # a test that forked: the child's session is not the stage's
            return
        rest = memoryview(json.dumps({"event": event, **fields}).encode("ascii") + b"\n")
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.send("selected", ids=[item.nodeid for item in session.items])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.send("collect_error", id=report.nodeid, reason=_last_line(report))
        elif report.skipped:
            self.send("collect_skip", id=report.nodeid, reason=_skip_reason(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.send("phase", id=report.nodeid, when=report.when, outcome=report.outcome, **_details(report))

    def pytest_internalerror(self, excrepr: object) -> None:
        self.send("interrupted", reason="internal error: " + str(excrepr).strip().rpartition("\n")[2])

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.send("interrupted", reason=f"{excinfo.typename}: {excinfo.value}")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        guards.installed().note_all()  # now, because a session may end the process without its exit functions
        self.send("end", status=int(session.exitstatus))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if self._is_first("selected"):
            self.send("selected", ids=list(ids))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        notes = getattr(node, "workeroutput", {}).get(_WORKER_KEY)
        if notes is not None and self._is_first("notes"):
            for note in notes:
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

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> Iterator[None]:
        result: Any = yield
        if result.get_result() and _may_hold_tests(collection_path, config.getini("python_files")):
            self._tell("ignored", ids=[os.path.relpath(collection_path, config.rootpath)])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if getattr(report, _COLLECTED, None) != _extent(report):
            self._tell("collect_error", id=report.nodeid, reason="what pytest had collected was replaced by a hook")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        self._tell("collected", ids=[item.nodeid for item in items])
        yield

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._tell("deselected", ids=[item.nodeid for item in items])


def _may_hold_tests(path: Path, patterns: list[str]) -> bool:
    if not path.is_dir():
        return any(fnmatch(path.name, pattern) for pattern in patterns)
    expected = not any(fnmatch(path.name, pattern) for pattern in _NO_TESTS_IN)
    return expected and any(found for pattern in patterns for found in path.rglob(pattern))


def _details(report: Any) -> dict[str, object]:
    """What else an outcome needs: reasons, the subtest that it is of, and at the end the routes that were taken."""
    details: dict[str, object] = {"raised": getattr(report, _RAISED, []), "called": getattr(report, _CALLED, False)}
    if hasattr(report, "wasxfail"):
        details["xfail"] = str(report.wasxfail)
    elif report.skipped:
        details["reason"] = _skip_reason(report)
    elif report.failed:
        details["reason"] = _last_line(report)
    if hasattr(report, "context"):
        details["subtest"] = True
    if report.when == "teardown":
        details["routes"] = [[k, str(v)] for k, v in report.user_properties if k.startswith("route.")]
    return details


def _skip_reason(report: Any) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
    prefix = "Skipped: "
    return str(reason[len(prefix) :] if reason.startswith(prefix) else reason)


def _last_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext.strip().rpartition("\n")[2]
    return str(text).partition("\n")[0][:500]
