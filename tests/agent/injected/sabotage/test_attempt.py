"""What a session whose code was made wrong takes for a test that has noticed it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.sabotage.attempt import Attempt
from orchestrator.agent.injected.sabotage.times import Times

pytestmark = pytest.mark.unit


def raised(error: BaseException) -> pytest.ExceptionInfo[BaseException]:
    try:
        raise error
    except BaseException as e:
        return pytest.ExceptionInfo.from_exception(e)


def noticed(error: BaseException, *, behind: bool, outcome: str = "failed") -> tuple[list[dict[str, Any]], bool]:
    """What is noted of a test that raises this, which pytest tells at once or, as of a unittest's, by a hook `behind`;
    and whether its report is a proof.
    """
    notes: list[dict[str, Any]] = []
    notebook: Any = SimpleNamespace(add=lambda **note: notes.append(note))
    call: Any = SimpleNamespace(excinfo=None if behind else raised(error))
    report = SimpleNamespace(outcome=outcome)
    item: Any = SimpleNamespace(nodeid="test_it.py::test")
    hook: Any = Attempt(notebook, "/tree", "", len, (), Times(())).pytest_runtest_makereport(item, call)
    next(hook)
    call.excinfo = raised(error)
    with pytest.raises(StopIteration):
        hook.send(SimpleNamespace(get_result=lambda: report))
    return notes, getattr(report, "nsa_pod_proof", False)


@pytest.mark.parametrize("behind", [False, True], ids=["a function", "a unittest's method"])
def test_a_failed_assertion_is_a_proof_wherever_pytest_takes_it_from(behind: bool) -> None:
    notes, proof = noticed(AssertionError("1 != 2"), behind=behind)
    assert proof and [(n["noticed"], n["error"]) for n in notes] == [("test_it.py::test", "AssertionError: 1 != 2")]


@pytest.mark.parametrize("behind", [False, True], ids=["a function", "a unittest's method"])
def test_another_error_is_told_and_no_proof(behind: bool) -> None:
    notes, proof = noticed(ValueError("no"), behind=behind)
    assert not proof and [n["error"] for n in notes] == ["ValueError: no"]
    assert noticed(pytest.skip.Exception("no GPU"), behind=behind, outcome="skipped") == ([], False)
