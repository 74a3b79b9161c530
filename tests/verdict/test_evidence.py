"""The judge alone: hostile files and records, and the parts that it is made of."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.agent.host import gpu
from orchestrator.agent.layout import Layout
from orchestrator.agent.run import prepare
from orchestrator.agent.run.supervise import Command
from orchestrator.shared import stage_record, text
from orchestrator.shared.stage_record import Evidence, blank, read
from orchestrator.verdict import junit, outcomes, routes
from orchestrator.verdict.case import Case, Run
from orchestrator.verdict.execution import Execution
from orchestrator.verdict.rules import judge_stage
from tests.support.agent_pod import artifact, pytest_stage, stage
from tests.support.judging import events, judge, phases, session_of, sessions_of

STATUSES = {"passed", "blocked", "failed", "invalid", "skipped", "timed_out", "stalled", "crashed", "cancelled"}


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        ([("setup", "passed"), ("call", "passed"), ("teardown", "passed")], "passed"),
        ([("setup", "passed"), ("call", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "failed"), ("teardown", "passed")], "error"),
        ([("setup", "passed"), ("call", "passed"), ("teardown", "failed")], "error"),
        ([("setup", "skipped"), ("teardown", "passed")], "skipped"),
        ([("setup", "passed"), ("call", "skipped"), ("teardown", "passed")], "skipped"),
        ([("setup", "passed"), ("teardown", "passed")], "unfinished"),
        ([("setup", "passed"), ("call", "rerun"), ("teardown", "passed")], "unfinished"),
    ],
)
def test_outcomes(seen: list[tuple[str, str]], outcome: str) -> None:
    assert events(*phases("t", *seen)).tests["t"].outcome == outcome


def test_a_repeated_test_counts_by_its_last_run() -> None:
    first = phases("t", ("setup", "passed"), ("call", "rerun"), ("teardown", "passed"))
    second = phases("t", ("setup", "passed"), ("call", "passed"), ("teardown", "passed"))
    assert events(*first, *second).tests["t"].outcome == "passed"


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]\n",
        b"{}\n",
        b'{"event": "nonsense"}\n',
        b'{"event": "end"}\n',
        b'{"event": "end", "status": Infinity}\n',
        b'{"event": "selected", "ids": 3}\n',
    ],
)
def test_lines_that_are_not_the_plugins(line: bytes) -> None:
    with pytest.raises(outcomes.Malformed, match="line 2"):
        outcomes.read(io.BytesIO(b'{"event": "start"}\n' + line))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not whole XML"),
        ("<testsuites>", "is not whole XML"),
        ("<html/>", "is not JUnit XML"),
        ("<!DOCTYPE a><testsuites/>", "has a document type declaration"),
        ('<!DOCTYPE a [<!ENTITY b "b"><!ENTITY c "&b;&b;">]><testsuites>&c;</testsuites>', "document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><testsuites/>', "document type"),
        ("<testsuites>&nbsp;</testsuites>", "is not whole XML"),
    ],
)
def test_hostile_junit(text: str, sentence: str) -> None:
    with pytest.raises(junit.Malformed, match=sentence):
        junit.parse(io.BytesIO(text.encode()))


def test_junit_cases() -> None:
    text = """<testsuites><testsuite>
      <testcase classname="a.test_b.TestC" name="test_d[x-1]"><properties>
        <property name="route.selected" value="triton@cpu:interpreted"/><property name="other" value="1"/>
      </properties></testcase>
      <testcase classname="" name="a.test_e"><skipped message="collection skipped"/></testcase>
      <testcase classname="" name="test_h"/>
      <testcase classname="a.f" name="g"><failure/><error/></testcase></testsuite></testsuites>"""
    cases = junit.parse(io.BytesIO(text.encode()))
    assert [(c.key, c.outcome) for c in cases] == [
        (junit.case_key("a/test_b.py::TestC::test_d[x-1]"), "passed"),
        (junit.case_key("a/test_e.py"), "skipped"),
        (junit.case_key("::test_h"), "passed"),  # of a file that is named as a module
        (junit.case_key("a/f.py::g"), "error"),
    ]
    assert cases[0].routes == {"route.selected": ["triton@cpu:interpreted"]}


def test_junit_that_is_deep_or_long() -> None:
    with pytest.raises(junit.Malformed, match="nested more than 20 deep"):
        junit.parse(io.BytesIO(b"<testsuites>" + b"<testsuite>" * 100_000))
    many = b'<testcase classname="a" name="b"/>' * 50_000
    assert len(junit.parse(io.BytesIO(b"<testsuites>" + many + b"</testsuites>"))) == 50_000


def misfit(record: object) -> str | None:
    """The first part of a record that is not as it must be."""
    try:
        read(record)
    except ValueError as e:
        return str(e)
    return None


# Records come from a pod ------------------------------------------------------------------------------------------


def test_the_blank_record_fits() -> None:
    assert misfit(blank([])) is None
    assert misfit(json.loads(json.dumps(blank(["x"])))) is None


@pytest.mark.parametrize("key", sorted(set(blank([])) - {"seconds", "leftovers", "refused", "redacted"}))
@pytest.mark.parametrize("value", ["gone", 3.5, [[]], [1], {}, {"ok": 1}], ids=repr)
def test_a_malformed_record_is_invalid(tmp_path: Path, key: str, value: Any) -> None:
    record = {**blank([]), "started": True, "exit_code": 0, key: value}
    judgement = judge(stage("s", ["true"]), record, tmp_path, {})
    if misfit(record) is None:  # a text is well-formed where a text may be
        assert judgement.status in STATUSES
    else:
        assert (judgement.status, judgement.reason) == (
            "invalid",
            f"the record of this stage is malformed: {misfit(record)}",
        )


def test_a_missing_fact_is_invalid(tmp_path: Path) -> None:
    for key in set(Evidence.__annotations__) - set(stage_record._SINCE):
        record = {k: v for k, v in blank([]).items() if k != key}
        assert judge(stage("s", ["true"]), record, tmp_path, {}).status == "invalid"


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({"ended_by": "cancel", "signal": "SIGTERM", "blocked": "x"}, "cancelled"),
        ({"blocked": "x", "ended_by": "wall"}, "blocked"),
        ({"ended_by": "wall", "signal": "SIGKILL"}, "timed_out"),
        ({"ended_by": "silence", "signal": "SIGKILL"}, "stalled"),
        ({"signal": "SIGSEGV", "exit_code": None}, "crashed"),
        ({"exit_code": 1, "environment_ok": False}, "failed"),
        ({"exit_code": None}, "failed"),
        ({"environment_ok": False}, "invalid"),
        ({"guarded": False}, "invalid"),
        ({"started": False}, "blocked"),
        ({}, "passed"),
    ],
)
def test_the_first_rule_that_matches_decides(tmp_path: Path, facts: dict[str, Any], status: str) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/a.txt").write_text("1")
    file = {"path": "artifacts/a.txt", "bytes": 1, "sha256": "0" * 64}
    delivered = {"path": "a.txt", "existed_before": False, "problem": None}
    record = {**blank([]), "started": True, "exit_code": 0, "files": [file], "artifacts": [delivered], **facts}
    planned = stage("s", ["true"], expect={"artifacts": [artifact("a.txt")]})
    assert judge(planned, record, tmp_path, {}).status == status


@pytest.mark.parametrize(
    ("facts", "asked", "content", "then", "now"),
    [
        ({}, {"checks": [{"column": "a", "max": 1}]}, "a\n2\n", "invalid", "failed"),
        ({}, {"checks": [{"column": "a", "max": 1, "impossible": True}]}, "a\n2\n", "invalid", "invalid"),
        ({}, {"checks": [{"column": "a", "max": 1}]}, "a\nx\n", "invalid", "invalid"),
        ({}, {"columns": ["a"]}, "a\n1\nOOM\n", "passed", "invalid"),
        ({}, {"columns": ["b"], "checks": [{"column": "a", "max": 1}]}, "a\n2\n", "invalid", "invalid"),
        ({"exit_code": 1}, {"checks": [{"column": "a", "max": 1, "impossible": True}]}, "a\n2\n", "failed", "failed"),
        ({"older": ["a"]}, {}, "a\n1\n", "invalid", "invalid"),
        ({"equal_to_committed": {"a": "b"}}, {}, "a\n1\n", "invalid", "invalid"),
        ({"equal_to_committed": {"a": "b"}}, {"reproducible": True}, "a\n1\n", "passed", "passed"),
        ({}, {}, "a\n1\n", "passed", "passed"),
    ],
)
def test_what_is_wrong_with_an_artifact_has_its_rule(
    tmp_path: Path, facts: dict[str, Any], asked: dict[str, Any], content: str, then: str, now: str
) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/a").write_text(content)
    file = {"path": "artifacts/a", "bytes": len(content), "sha256": "0" * 64}
    delivered = {"path": "a", "existed_before": False, "problem": None}
    record = {**blank([]), "started": True, "exit_code": 0, "files": [file], "artifacts": [delivered], **facts}
    planned = stage("s", ["true"], expect={"artifacts": [artifact("a", kind="csv", **asked)]})
    for format_, status in ((1, then), (2, now)):
        found = judge_stage(Run(tmp_path, format_), planned, record, {})  # type: ignore[arg-type]
        assert (found.status, bool(found.reason)) == (status, status != "passed"), found


@pytest.mark.parametrize(
    ("devices", "cell", "status"),
    [
        (frozenset(), "cuda:0", "invalid"),
        (frozenset(), "cpu", "passed"),
        (frozenset({"cuda:sm_90"}), "cuda:0", "passed"),
        (None, "cuda", "passed"),
    ],
)
def test_a_table_is_not_of_a_device_that_the_pod_lacks(
    tmp_path: Path, devices: frozenset[str] | None, cell: str, status: str
) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/a").write_text(f"ms,device\n1,{cell}\n")
    file = {"path": "artifacts/a", "bytes": 1, "sha256": "0" * 64}
    delivered = {"path": "a", "existed_before": False, "problem": None}
    record = {**blank([]), "started": True, "exit_code": 0, "files": [file], "artifacts": [delivered]}
    planned = stage("s", ["true"], expect={"artifacts": [artifact("a", kind="csv", columns=["device"])]})
    assert judge(planned, record, tmp_path, devices=devices).status == status


def test_the_plans_word_counts_and_not_the_pods(tmp_path: Path) -> None:
    record = {**blank([]), "started": True, "exit_code": 0, "status": "passed", "reason": ""}
    assert judge(stage("s", ["true"], blocked="requires cuda"), record, tmp_path, {}).status == "blocked"
    assert judge(stage("s", ["true"], needs=["a"]), record, tmp_path, {}).status == "blocked"
    assert judge(stage("s", ["true"], needs=["a"]), record, tmp_path, {"a": "skipped"}).status == "blocked"
    assert judge(stage("s", ["true"], needs=["a"]), record, tmp_path, {"a": "passed"}).status == "invalid"


def test_files_that_the_record_does_not_list_are_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/a.txt").write_text("1")
    delivered = {"path": "a.txt", "existed_before": False, "problem": None}
    record = {**blank([]), "started": True, "exit_code": 0, "artifacts": [delivered]}
    judgement = judge(stage("s", [], expect={"artifacts": [artifact("a.txt")]}), record, tmp_path, {})
    assert (judgement.status, judgement.reason) == ("invalid", "artifact a.txt is missing")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(plugin=st.binary(max_size=300), xml=st.binary(max_size=300), exit_code=st.sampled_from([0, 1, 4, 5]))
def test_no_file_raises_and_no_garbage_passes(tmp_path: Path, plugin: bytes, xml: bytes, exit_code: int) -> None:
    folder = tmp_path / "stages/s"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pytest.jsonl").write_bytes(plugin)
    (folder / "junit.xml").write_bytes(xml)
    files = [{"path": f"stages/s/{n}", "bytes": 0, "sha256": ""} for n in ("pytest.jsonl", "junit.xml")]
    record = {**blank([]), "started": True, "exit_code": exit_code, "files": files}
    judgement = judge(pytest_stage("s"), record, tmp_path, {})
    assert judgement.status in ("failed", "invalid") and judgement.reason.isprintable()


def test_a_bench_owes_the_fact_that_it_had_the_gpu_to_itself(tmp_path: Path) -> None:
    bench = stage("s", ["true"], exclusive="gpu", cuda=True)
    for use, reason in ((None, "was not recorded"), ({"unknown": None, "disturbed": "pid 42"}, "pid 42")):
        record = {**blank([]), "started": True, "exit_code": 0, "gpu": use}
        judgement = judge(bench, record, tmp_path, {})
        assert judgement.status == "invalid" and reason in judgement.reason


@pytest.mark.parametrize(
    ("cuda", "capabilities", "route", "wrong"),
    [
        (False, [], "triton@cuda:sm_90", "but the pod has no CUDA GPU"),
        (True, ["8.9"], "triton@cuda:sm_90", "but the pod has cuda:sm_89"),
        (True, ["8.9", "9.0"], "triton@cuda:sm_90", None),
        (True, [None], "triton@cuda:sm_90", None),
        (True, ["8.9"], "triton@cpu:interpreted", None),
    ],
)
def test_a_route_names_a_device_of_the_pod(
    tmp_path: Path, cuda: bool, capabilities: list[Any], route: str, wrong: str | None
) -> None:
    gpus = [{"compute_cap": capability} for capability in capabilities]
    known = routes.devices({"promises": {"cuda": cuda}, "facts": {"gpus": gpus}})
    owed = {"tests": {}, "routes": {"selected": "triton"}}
    case = Case(Run(tmp_path, devices=known), stage("s", [], expect=owed), None)  # type: ignore[arg-type]
    case.sessions = sessions_of(session_of(t=route))
    case.execution = Execution()
    case.execution.fold({"ran": {"cuda:0": {"k": 1}}, "test": "t"})
    assert list(routes.problems(case)) == ([f"route.selected was {route}, {wrong}"] if wrong else [])


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (b"Traceback (most recent call last):\n", "a Python traceback"),
        (b"ok\n[rank0]: Traceback (most recent call last):\n", "a Python traceback"),
        (b"Exception ignored in: <f>\nTraceback (most recent call last):\n", None),
        (b"a traceback\n", None),
        (b"ERROR:root:attempt 1\nTraceback (most recent call last):\n  f()\nOSError: busy\n", None),
        (b"Traceback (most recent call last):\n  f()\nBrokenPipeError: [Errno 32] Broken pipe\n", None),
        (b"Traceback (most recent call last):\n  serve()\nKeyboardInterrupt\n", None),
        (b"Traceback (most recent call last):\n  f()\nOSError: busy\ndone\n", "a Python traceback"),
        (
            b'  File "a.py", line 1\n    def f(:\nSyntaxError: invalid syntax\n',
            "Python's 'SyntaxError: invalid syntax'",
        ),
        (b"/env/bin/python3.11: No module named gone\n", "Python's 'python3.11: No module named gone'"),
        (b"/env/bin/python: No module named pip\n", None),
        (b"/env/bin/python: No module named pipes_of_ours\n", "Python's 'python: No module named pipes_of_ours'"),
        (b"Fatal Python error: Segmentation fault\n", "Python's 'Fatal Python error: Segmentation fault'"),
        (b"test.py: a SyntaxError: expected\n", None),
    ],
)
def test_python_errors_but_not_those_that_python_ignores(said: bytes, found: str | None) -> None:
    assert text.python_error(io.BytesIO(said)) == found


@pytest.mark.parametrize(
    ("visible", "sees"),
    [("0", True), ("1,0", True), ("7,0", False), ("-1", False), ("", False), ("GPU-a", True), ("GPU-b", False)],
)
def test_which_gpus_a_stage_sees(visible: str, sees: bool) -> None:
    gpus = [{"index": 0, "uuid": "GPU-a1"}, {"index": 1, "uuid": "GPU-a2"}]
    assert gpu.sees_any(visible, gpus) is sees
    assert gpu.sees_any(visible, []) is (visible not in ("", "-1"))


def test_a_pytest_of_another_python_is_not_the_environments(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "env" / "bin", tmp_path / "other"
    for folder, script in ((ours, ""), (theirs, "#!/usr/bin/python2\n")):
        folder.mkdir(parents=True)
        (folder / "pytest").write_text(script)
        (folder / "pytest").chmod(0o755)
    interpreter = Interpreter(
        f"{ours}/python", "system", None, "3.11.1", str(ours.parent), f"{ours}/python", False, "lib", (), frozenset()
    )

    def why_blocked(path: Path) -> str | None:
        planned = {"argv": ["pytest"], "paths": []}
        command = Command(["pytest"], tmp_path, {"PATH": str(path)}, tmp_path / "out", tmp_path / "err", 1)
        return prepare.why_blocked(planned, command, interpreter, Layout(tmp_path))

    assert why_blocked(ours) is None
    assert why_blocked(theirs) == f"pytest is not the environment's: expected one in {ours}"
    (theirs / "pytest").write_text(f"#!{ours}/python\n")  # as an installer writes it elsewhere
    assert why_blocked(theirs) is None
    (tmp_path / "link").symlink_to(ours)  # another way to the same place
    assert why_blocked(tmp_path / "link") is None
