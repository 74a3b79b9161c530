"""Tests of twisted's trial are told as unittest's are, by what its reporter is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.checks.records import Checks
from orchestrator.agent.injected.runners.other_runners import OtherRunners
from orchestrator.agent.injected.stage import Config, Notes, config_text


class Reporter:
    """What trial's own has of this."""

    def startTest(self, test: object) -> None: ...
    def stopTest(self, test: object) -> None: ...
    def addError(self, test: object, failure: object) -> None: ...
    def addFailure(self, test: object, failure: object) -> None: ...
    def addSkip(self, test: object, reason: str) -> None: ...
    def addExpectedFailure(self, test: object, failure: object, todo: object = None) -> None: ...
    def addUnexpectedSuccess(self, test: object, todo: object = None) -> None: ...


class Test:
    def id(self) -> str:
        return "module.Case.test_it"


@pytest.mark.parametrize(
    ("told", "outcome", "more"),
    [
        ((), "passed", {}),
        (("addError", SimpleNamespace(value=ValueError("no"))), "failed", {"reason": "ValueError: no"}),
        (
            ("addFailure", (AssertionError, AssertionError("1 != 2"), None)),
            "failed",
            {"reason": "AssertionError: 1 != 2"},
        ),
        (("addSkip", "no reactor"), "skipped", {"reason": "no reactor"}),
        (("addExpectedFailure", None), "skipped", {"xfail": "expected to fail"}),
        (("addUnexpectedSuccess",), "passed", {"xfail": "expected to fail"}),
    ],
)
def test_a_test_of_trial_is_told(tmp_path: Path, told: tuple[Any, ...], outcome: str, more: dict[str, str]) -> None:
    config = Config(config_text({"tree": str(tmp_path), "sessions": str(tmp_path / "sessions")}))
    checks = Checks(config, Notes(str(tmp_path / "observed")))
    runners = OtherRunners(config, checks, lambda: None, lambda test: None, is_bare=False)
    module = SimpleNamespace(TestResult=type("TestResult", (Reporter,), {}))
    runners.after_import["twisted.trial.reporter"](module)  # type: ignore[arg-type]
    result, test = module.TestResult(), Test()
    getattr(result, told[0])(Test(), *told[1:]) if told else None  # of a test that nobody has begun nothing is told
    result.startTest(test)
    if told:
        getattr(result, told[0])(test, *told[1:])
    result.stopTest(test)
    [session] = (tmp_path / "sessions").iterdir()
    events = [json.loads(line) for line in session.read_text().splitlines()]
    [call] = [event for event in events if event.get("when") == "call"]
    assert (call["id"], call["outcome"]) == ("module.Case.test_it", outcome)
    assert more.items() <= call.items()
