"""What a stage was seen to compute on: CUDA stages that did not, and routes that only say so."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.shared.stage_record import blank
from orchestrator.verdict import execution, routes
from orchestrator.verdict.case import Case, Run
from orchestrator.verdict.outcomes import Malformed
from orchestrator.verdict.rules import Judgement
from tests.support.agent_pod import artifact, pytest_stage, stage
from tests.support.judging import judge, session_of, sessions_of

ON_CUDA = "triton@cuda:sm_90"


def ran(test: str | None, device: str = "cuda:0", **kernels: int) -> dict[str, Any]:
    return {"ran": {device: kernels or {"fwd": 1}}, "test": test}


def case_of(folder: Path, owed: Any, lines: list[dict[str, Any]], plan_format: int = 2, **tests: str) -> Case:
    made = pytest_stage("s", expect={"routes": {"selected": owed}, "device": "cuda"}, cuda=True)
    case = Case(Run(folder, plan_format), made, None)  # type: ignore[arg-type]
    case.sessions = sessions_of(session_of(**tests))
    case.execution = execution.read(io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
    return case


def test_work_is_told_by_test_and_device() -> None:
    found = execution.Execution()
    for line in (
        {"loaded": 7},
        ran("a", fwd=2),
        ran("a", fwd=1, bwd=1),
        ran(None, "cpu:interpreted"),
        {"cuda": "used", "test": "b"},
    ):
        found.fold(line)
    assert found.executed == {
        "cpu:interpreted": {"launches": 1, "kernels": ["fwd"]},
        "cuda:0": {"launches": 4, "kernels": ["bwd", "fwd"]},
    }
    assert found.of("a").kernels("cuda") == found.of("a").kernels("cuda:0") == {"fwd", "bwd"}
    assert not found.of("a").kernels("cuda:1") and not found.of("none").on_cuda
    assert found.of("b").on_cuda and not found.of("b").launches


@pytest.mark.parametrize("text", [b"[]\n", b"{\n", b'{"ran": 3}\n', b'{"ran": {"cuda:0": {"k": "x"}}}\n', b"\xff\n"])
def test_a_report_that_nobody_was_asked_to_write_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        execution.read(io.BytesIO(text))


def of_a_program(folder: Path, device: str | None, facts: dict[str, Any], **keys: Any) -> Judgement:
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "a.txt").write_text("1")
    record = {
        **blank([]), "started": True, "exit_code": 0, "files": [{"path": "artifacts/a.txt", "bytes": 1, "sha256": ""}],
        "artifacts": [{"path": "a.txt", "existed_before": False, "problem": None}], **facts,
    }  # fmt: skip
    made = stage("s", ["true"], cuda=True, expect={"device": device, "artifacts": [artifact("a.txt")]}, **keys)
    return judge(made, record, folder)


@pytest.mark.parametrize(
    ("device", "facts", "status", "reason"),
    [
        ("cuda", {"used_cuda": True}, "passed", ""),
        ("cuda", {"used_cuda": False}, "invalid", "it is for CUDA, and launched no kernel on the GPU"),
        ("cuda", {"used_cuda": None}, "invalid", "it is for CUDA, and launched no kernel on the GPU"),
        ("any", {"used_cuda": False}, "passed", ""),
        (
            "cuda",
            {"used_cuda": True, "executed": {"cpu:interpreted": {"launches": 2, "kernels": ["fwd"]}}},
            "invalid",
            "Triton's interpreter ran its kernels on the CPU: fwd",
        ),
        ("any", {"executed": {"cpu:interpreted": {"launches": 2, "kernels": ["fwd"]}}}, "passed", ""),
    ],
)
def test_a_stage_for_cuda_owes_work_on_it(
    tmp_path: Path, device: str, facts: dict[str, Any], status: str, reason: str
) -> None:
    judged = of_a_program(tmp_path, device, facts)
    assert (judged.status, reason in judged.reason) == (status, True), judged


@pytest.mark.parametrize(
    ("device", "value", "status"),
    [
        ("cuda", "1", "invalid"),
        ("cuda", "True", "invalid"),
        ("cuda", "on", "invalid"),
        ("cuda", "0", "passed"),
        ("cuda", "", "passed"),
        (None, "1", "invalid"),  # a program that need not launch anything, in a runbook for CUDA
        (None, "0", "passed"),
        ("any", "1", "passed"),
    ],
)
def test_a_stage_for_cuda_is_not_told_to_interpret(tmp_path: Path, device: str | None, value: str, status: str) -> None:
    judged = of_a_program(tmp_path, device, {"used_cuda": True}, env={"TRITON_INTERPRET": value})
    assert judged.status == status and (status == "passed" or "TRITON_INTERPRET" in judged.reason), judged


@pytest.mark.parametrize(
    ("owed", "lines", "tests", "wrong"),
    [
        ("triton", [ran("a")], {"a": ON_CUDA}, None),
        ("triton", [ran("a"), ran("b")], {"a": ON_CUDA, "b": ON_CUDA}, None),
        # Typed, and not done in this test.
        ("triton", [], {"a": ON_CUDA}, "a launched no kernel of Triton's on the GPU"),
        ("triton", [ran("other"), ran(None)], {"a": ON_CUDA}, "a launched no kernel of Triton's on the GPU"),
        ("triton", [ran("a", "cpu:interpreted")], {"a": ON_CUDA}, "launched no kernel of Triton's"),
        ("triton", [{"cuda": "used", "test": "a"}], {"a": ON_CUDA}, "launched no kernel of Triton's"),
        ("triton", [ran("a", "cuda:1")], {"a": "triton@cuda:0"}, "launched no kernel of Triton's"),
        ("fa2", [{"cuda": "used", "test": "a"}], {"a": "fa2@cuda:sm_90"}, None),
        ("fa2", [ran("a")], {"a": "fa2@cuda:sm_90"}, None),
        ("fa2", [{"cuda": "used", "test": None}], {"a": "fa2@cuda:sm_90"}, "a did nothing on the GPU"),
        # Owed by every passed test, or by those that match.
        ("triton", [ran("a")], {"a": ON_CUDA, "b": ""}, "b passed and recorded no route.selected, expected triton"),
        (
            "triton",
            [ran("a")],
            {"a": ON_CUDA, "b": "torch@cuda:sm_90"},
            r"route.selected was torch@cuda:sm_90, expected",
        ),
        ({"backend": "triton", "tests": "^a$"}, [ran("a")], {"a": ON_CUDA, "b": ""}, None),
        (
            {"backend": "triton", "tests": "^c$"},
            [ran("a")],
            {"a": ON_CUDA},
            "no passed test that matches '^c$' recorded",
        ),
        (
            {"backend": "triton", "tests": "a"},
            [ran("a1")],
            {"a1": ON_CUDA, "a2": ""},
            "a2 passed and recorded no route",
        ),
        ({"backend": "triton", "kernels": "^fwd"}, [ran("a", fwd_sm90=1)], {"a": ON_CUDA}, None),
        (
            {"backend": "triton", "kernels": "^bwd"},
            [ran("a")],
            {"a": ON_CUDA},
            "launched no kernel that matches '^bwd'",
        ),
    ],
)
def test_a_route_counts_in_the_test_that_was_seen_to_take_it(
    tmp_path: Path, owed: Any, lines: list[dict[str, Any]], tests: dict[str, str], wrong: str | None
) -> None:
    found = list(routes.problems(case_of(tmp_path, owed, lines, **tests)))
    assert (not found) if wrong is None else (found and wrong in found[0]), found


def test_a_route_that_nobody_owes_is_counted_only_where_it_was_seen(tmp_path: Path) -> None:
    case = case_of(tmp_path, "triton", [ran("a")], a=ON_CUDA, b=ON_CUDA, c="torch@cpu")
    assert routes.taken(case) == {"selected": {ON_CUDA: 1, "torch@cpu": 1}}
    assert routes.at_their_word(routes.taken(case)) == ["selected"]


def test_runs_of_the_first_format_keep_their_rule(tmp_path: Path) -> None:
    assert not list(routes.problems(case_of(tmp_path, "triton", [], plan_format=1, a=ON_CUDA, b="")))
