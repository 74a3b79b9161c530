"""What the verdict makes of the checks that ran, and of what was written and not collected."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.verdict import outcomes, tests
from tests.support.judging import events, phases


def session(checks: dict[str, Any], outcome: str = "passed") -> outcomes.Session:
    return events(
        *phases("t", ("setup", "passed"), ("call", outcome)), *phases("t", ("teardown", "passed"), checks=checks)
    )


@pytest.mark.parametrize(
    ("checks", "outcome", "reason"),
    [
        ({}, "passed", ""),
        ({"lost": [], "idle": False, "ran": 2, "vacuous": ""}, "passed", ""),
        ({"lost": [], "idle": True, "ran": 1, "vacuous": ""}, "idle", "no assertion of it ran"),
        ({"idle": True, "why": "f is a mock", "ran": 0}, "idle", "no assertion of it ran: f is a mock"),
        ({"ran": 2}, "passed", ""),
        ({"lost": ["dropped"], "idle": True, "ran": 0, "vacuous": ""}, "failed", "dropped"),
    ],
)
def test_outcome_by_checks(checks: dict[str, Any], outcome: str, reason: str) -> None:
    found = session(checks).tests["t"]
    assert (found.outcome, found.reason) == (outcome, reason)


def test_what_failed_is_not_judged_by_its_checks() -> None:
    assert session({"idle": True, "ran": 0, "vacuous": ""}, "failed").tests["t"].outcome == "failed"


def test_checks_are_not_known_of_earlier_versions() -> None:
    assert session({}).tests["t"].checks is None
    assert session({"ran": 0, "vacuous": "empty"}).tests["t"].checks == 0


def test_a_pass_without_an_assertion_is_a_shortfall_that_can_be_allowed() -> None:
    found = session({"idle": True, "ran": 0, "vacuous": ""})
    (short,) = tests.shortfalls(found, [tests.Pattern("no assertion")])
    assert (short.outcome, short.allowed) == ("unasserted", True)


def test_what_was_not_collected_is_a_deselection_that_can_be_allowed() -> None:
    found = events({"event": "not_collected", "ids": ["a.py::A::test_b"]})
    (short,) = tests.shortfalls(found, [tests.Pattern("^not collected: .*test_c")])
    assert short == ("a.py::A::test_b", "deselected", "not collected: a.py::A::test_b", False)
    assert tests.shortfalls(found, [tests.Pattern("^not collected: .*test_b")])[0].allowed


def test_an_assertion_has_run_if_it_did_in_any_test() -> None:
    found = events({"event": "assertions", "due": ["a.py:9"], "reached": ["a.py:2"]})
    again = events({"event": "assertions", "due": ["b.py:3", "a.py:2"], "reached": ["a.py:9"]})
    assert found.due - found.reached == {"a.py:9"}
    whole = outcomes.merged([found, again])
    assert whole.due - whole.reached == {"b.py:3"}
