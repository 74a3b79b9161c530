"""In a session whose code was made wrong: which test notices it, by a failed assertion or comparison.

Other errors are told too; they are no proof that a test looks at results, nor is one that was only late. The session
ends with the first proof, and begins with the tests that were quick when nothing was wrong. In the control nothing is
wrong; it ends when all tests that have noticed something have run, and tells of those that pass.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from typing import Any, Callable, Collection, Iterable, Iterator, Optional
from unittest import SkipTest

import pytest

from ..runners.why import of_error
from ..stage import Notes
from .lateness import is_late
from .times import Times

_PROOF, _FAILED = "nsa_pod_proof", "nsa_pod_failed"
_MOST_TOLD = 20
_MESSAGE_LENGTH = 300
# Comparisons that raise no AssertionError: of torch's gradcheck, of doctest and pytest's account of it.
_COMPARISONS = ("GradcheckError", "DocTestFailure", "MultipleDoctestFailures")
# Tests of one class keep their order: those that build on each other are seldom of several.
_CLASSES_S = (0.1, 1.0, 10.0)
_EXIT_S = 1.0
"""What the workers of a session have left once it is decided."""
_CHILD_FAILED = "ProcessRaisedException"  # of torch.multiprocessing: it holds the child's traceback as text


class Attempt:
    """Registered in the stage's own sessions; `tests` is a pattern of the ids that are to run, or empty; those that
    `rank` puts lower run first. The tests `noticed` are those of a control.
    """

    def __init__(
        self,
        notes: Notes,
        tree: str,
        tests: str,
        rank: Callable[[str], int],
        noticed: Collection[str],
        times: Times,
    ) -> None:
        self._notes = notes
        self._tree = tree
        self._tests = re.compile(tests)
        self._rank = rank
        self._noticed = noticed
        self._times = times
        self._told = 0
        times.start()  # in the control too, whose tests pass then, or have noticed what a time is made of

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
        yield
        left = [item for item in items if not self._tests.search(item.nodeid)]
        if left:
            items[:] = [item for item in items if self._tests.search(item.nodeid)]
            config.hook.pytest_deselected(items=left)
        items.sort(key=lambda item: self._rank(item.nodeid))

    def pytest_collection_finish(self) -> None:
        self._times.watch_events()

    def pytest_runtest_logstart(self) -> None:
        self._times.too_long.clear()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        before = call.excinfo
        result: Any = yield
        report = result.get_result()
        excinfo = before or call.excinfo  # a unittest's is there behind pytest's own hook
        if self._noticed:
            self._note_held(item, report)
            return
        if report.outcome != "failed" or excinfo is None or excinfo.errisinstance((pytest.skip.Exception, SkipTest)):
            return
        compares = is_comparison(excinfo.value)
        late = compares and is_late(excinfo.value, self._times)
        proof = compares and not late
        setattr(report, _PROOF, proof)  # xdist brings it to the process that reports
        if proof or self._told < _MOST_TOLD:
            self._told += 1
            raised = of_error(excinfo.value, self._tree) or {}
            where = {key: raised.get(key) for key in ("place", "line")}
            self._notes.add(noticed=item.nodeid, proof=proof, late=late, error=_sentence(excinfo), **where)

    def _note_held(self, item: pytest.Item, report: pytest.TestReport) -> None:
        if not report.passed:
            item.__dict__[_FAILED] = True
        elif report.when == "teardown" and item.nodeid in self._noticed and _FAILED not in item.__dict__:
            self._notes.add(held=item.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self._told < _MOST_TOLD:
            self._told += 1
            said = report.longreprtext.strip().rpartition("\n")[2]
            self._notes.add(noticed=report.nodeid, proof=False, error=said[:_MESSAGE_LENGTH])


class Stop:
    """In the process that reports: ends the session with the first proof, or a control with the last of its tests."""

    def __init__(self, config: pytest.Config, noticed: Collection[str]) -> None:
        self._config = config
        self._left = set(noticed)
        self._is_control = bool(noticed)
        self._session: Optional[pytest.Session] = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._left.discard(report.nodeid)
        if (self._is_control and not self._left) or getattr(report, _PROOF, False):
            distributed = self._config.pluginmanager.get_plugin("dsession")  # xdist's own loop
            for loop in filter(None, (self._session, distributed)):
                loop.shouldfail = loop.shouldstop = "what was asked is known"
            if distributed is not None:  # else they would go on with what they were given, for ten seconds
                distributed.nodemanager.EXIT_TIMEOUT = _EXIT_S


def noticed_in(files: Iterable[str]) -> set[str]:
    """The tests that a control is about, by its file; an attempt has none."""
    found: set[str] = set()
    for file in files:
        with open(file, encoding="ascii") as f:
            found.update(json.load(f))
    return found


def quickest(durations: str) -> Callable[[str], int]:
    """Ranks ids of tests by the file of their seconds: roughly, and those that it does not know last."""
    with open(durations, encoding="ascii") as f:
        seconds: dict[str, float] = json.load(f)
    return lambda id_: bisect(_CLASSES_S, seconds.get(id_, _CLASSES_S[-1]))


def is_comparison(error: Optional[BaseException]) -> bool:
    """Whether an assertion or a comparison has failed, here or in what led to the error."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if _is_itself(error):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def _is_itself(error: BaseException) -> bool:
    if isinstance(error, AssertionError):
        return True
    if isinstance(error, pytest.fail.Exception):  # pytest.raises too; not a time limit
        return "pytest-timeout" not in str(error)
    inner = getattr(error, "exceptions", None)  # of a group
    if isinstance(inner, tuple):
        return any(isinstance(e, BaseException) and is_comparison(e) for e in inner)
    name = type(error).__name__
    if name == "MultipleDoctestFailures":
        return any(type(e).__name__ in _COMPARISONS for e in getattr(error, "failures", ()))
    return name in _COMPARISONS or (name == _CHILD_FAILED and "AssertionError" in str(error))


def _sentence(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    first = str(excinfo.value).strip().partition("\n")[0]
    return f"{excinfo.typename}: {first}"[:_MESSAGE_LENGTH] if first else excinfo.typename
