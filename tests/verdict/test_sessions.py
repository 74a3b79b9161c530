"""Several pytest sessions of one stage, as the script ran them, judged as one."""

from __future__ import annotations

import io
import json

from orchestrator.verdict import outcomes


def session(*tests: tuple[str, str], prefix: str = "", outside: bool = False) -> outcomes.Session:
    """A session that ran these tests, each with the outcome of its call."""
    ids = [id_ for id_, _ in tests]
    events = [
        {"event": "start", "prefix": prefix, "outside": outside},
        {"event": "collected", "ids": ids},
        {"event": "selected", "ids": ids},
        *(
            {"event": "phase", "id": id_, "when": when, "outcome": outcome if when == "call" else "passed"}
            for id_, outcome in tests
            for when in ("setup", "call", "teardown")
        ),
        {"event": "end", "status": 0},
    ]
    return outcomes.read(io.BytesIO("".join(json.dumps(event) + "\n" for event in events).encode()))


def test_sessions_are_summed() -> None:
    whole = outcomes.merged([session(("a.py::x", "passed")), session(("b.py::y", "failed"))])
    assert whole.collected == whole.selected == ["a.py::x", "b.py::y"]
    assert [test.id for test in whole.with_outcome("failed")] == ["b.py::y"]


def test_a_test_that_two_sessions_ran_counts_twice() -> None:
    whole = outcomes.merged([session(("a.py::x", "failed")), session(("a.py::x", "passed"))])
    assert {test.id: test.outcome for test in whole.tests.values()} == {
        "a.py::x": "failed",
        "a.py::x (session 2)": "passed",
    }


def test_ids_begin_at_the_tree() -> None:
    whole = outcomes.merged([session(("tree/a.py::x", "passed"), prefix="tree/")])
    assert list(whole.tests) == ["a.py::x"]


def test_a_session_outside_the_tree_can_fail_but_not_pass() -> None:
    whole = outcomes.merged([session(("a.py::x", "passed"), ("a.py::y", "failed"), outside=True)])
    assert [(test.id, test.outcome) for test in whole.tests.values()] == [("a.py::y", "failed")]


def test_a_test_that_failed_and_was_run_again_is_a_rerun() -> None:
    found = session(("x", "failed"), ("x", "passed"), ("y", "passed"), ("y", "passed"))
    assert [(test.id, test.outcome) for test in found.tests.values()] == [("x", "passed"), ("y", "passed")]
    assert list(found.reruns) == ["x"]


def test_a_test_whose_process_crashed_has_failed_and_is_no_error() -> None:
    events = [
        {"event": "start"},
        {"event": "phase", "id": "x", "when": "???", "outcome": "failed", "reason": "crashed"},
    ]
    found = outcomes.read(io.BytesIO("".join(json.dumps(event) + "\n" for event in events).encode()))
    assert found.tests["x"].outcome == "failed"


def test_nothing_ran() -> None:
    assert outcomes.merged([]) == outcomes.Session()
