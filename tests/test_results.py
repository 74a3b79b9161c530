"""From a run's files to a verdict and a report: by rule, and without believing what is stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import IntegrityError
from orchestrator.results import Seen, judge
from orchestrator.shared.answers import RunState
from orchestrator.shared.files import describe
from orchestrator.verdict.case import SESSIONS
from orchestrator.verdict.status import OUTCOMES
from tests.support.files import write_files
from tests.support.run_files import make_run, record, write_journal

FACTS: dict[str, dict[str, Any]] = {
    "passed": {},
    "failed": {"exit_code": 1},
    "timed_out": {"ended_by": "wall"},
    "stalled": {"ended_by": "silence"},
    "crashed": {"signal": "SIGSEGV"},
    "invalid": {"environment_ok": False},
    "blocked": {"blocked": "tool is missing", "started": False},
    "cancelled": {"ended_by": "cancel"},
}


@pytest.mark.parametrize(
    ("required", "optional", "verdict"),
    [
        ("passed", "passed", "passed"),
        ("failed", "passed", "failed"),
        ("timed_out", "passed", "failed"),
        ("stalled", "passed", "failed"),
        ("crashed", "passed", "failed"),
        ("invalid", "passed", "failed"),
        ("blocked", "passed", "incomplete"),
        ("cancelled", "passed", "incomplete"),
        (None, "passed", "incomplete"),
        ("passed", "failed", "passed"),
        ("passed", None, "passed"),
    ],
)
def test_the_verdict_follows_from_the_required_stages(
    tmp_path: Path, required: str | None, optional: str | None, verdict: str
) -> None:
    run, plan = make_run(tmp_path, {"a": True, "b": False})
    given = {"a": required, "b": optional}
    write_journal(run, plan, [record(run, name, **FACTS[status]) for name, status in given.items() if status])
    result = run.settle(Seen("ended"))
    assert {s.name: s.status for s in result.stages} == {name: status or "not_run" for name, status in given.items()}
    assert (result.verdict, result.exit_code) == (verdict, OUTCOMES[result.verdict].exit_code)
    if optional != "passed":
        assert "optional and not passed: b" in result.summary


@pytest.mark.parametrize(("more", "status"), [("notes.txt", "passed"), ("a.txt", "invalid")])
def test_a_file_that_a_later_stage_has_changed_is_missed_only_where_it_is_owed(
    tmp_path: Path, more: str, status: str
) -> None:
    run, plan = make_run(tmp_path, {"a": True, "b": False})
    first = record(run, "a")
    (run.path / "artifacts" / more).write_text("first\n")
    first["files"] = [describe(run.path, path) for path in dict.fromkeys(["artifacts/a.txt", f"artifacts/{more}"])]
    write_journal(run, plan, [first, record(run, "b", overwritten=[more])])
    (run.path / "artifacts" / more).unlink()  # the pod no longer has it
    assert [stage.status for stage in run.settle(Seen("ended")).stages] == [status, "invalid"]


def test_without_a_required_stage_nothing_is_green(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"b": False})
    write_journal(run, plan, [record(run, "b")])
    result = run.settle(Seen("ended"))
    assert result.verdict == "incomplete"
    assert result.summary.startswith("incomplete on CPU; 1 of 1 stage passed; no required stage applied;")


@pytest.mark.parametrize("state", ["lost", "running"])
def test_a_run_that_has_not_ended_is_never_green(tmp_path: Path, state: RunState) -> None:
    run, plan = make_run(tmp_path, {"a": True, "b": True})
    write_journal(run, plan, [record(run, "a")], end=False)
    result = run.settle(Seen(state))
    assert (result.verdict, result.state) == ("error" if state == "lost" else "incomplete", state)
    assert [s.status for s in result.stages] == ["passed", "not_run"]
    assert ("it went on when it was last seen" in result.summary) == (state == "running")
    assert ("had not ended when" in result.stages[1].reason) == (state == "running")


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            "[Errno 28] No space left on device (0 B of 1.0 GiB are free)",
            "full (0 B of 1.0 GiB are free, not enough): free",
        ),
        ("[Errno 30] Read-only file system", "ended: [Errno 30] Read-only file system; what ran"),
        ("", "ended; what ran"),
    ],
)
def test_a_disk_that_an_agent_died_of_is_said_and_stays_said(tmp_path: Path, refusal: str, said: str) -> None:
    run, plan = make_run(tmp_path, {"a": True})
    write_journal(run, plan, [], end=False)
    result = run.settle(Seen("lost", refusal=refusal))
    assert said in (result.error or "") and run.rejudge().error == result.error


def test_a_finished_stage_list_without_the_run_s_end_is_not_green(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"a": True})
    write_journal(run, plan, [record(run, "a")], end=False)
    assert run.settle(Seen("running")).verdict == "incomplete"


def test_a_journal_of_another_run_is_an_error(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"a": True})
    write_journal(run, {**plan, **{"run_id": "other"}}, [record(run, "a")])
    result = run.settle(Seen("ended"))
    assert result.verdict == "error" and "other" in str(result.error)


def test_a_run_under_the_name_of_another_one_is_an_error(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"a": True})
    write_journal(run, plan, [record(run, "a")])
    assert run.settle(Seen("ended")).verdict == "passed"
    for name, verdict in (("20261127-145613-053510d-12014474", "error"), ("kept", "passed")):
        shutil.copytree(run.path, tmp_path / name)
        assert judge(tmp_path / name, Seen("ended"), path=name).verdict == verdict


def test_a_changed_journal_is_refused(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"a": True})
    write_journal(run, plan, [record(run, "a", exit_code=1)])
    run.journal_file.write_bytes(run.journal_file.read_bytes().replace(b'"exit_code":1', b'"exit_code":0'))
    with pytest.raises(IntegrityError, match="was changed"):
        run.settle(Seen("ended"))


@pytest.mark.parametrize("harm", ["change", "remove", "link"])
def test_a_file_that_is_not_as_recorded_takes_the_pass_away(tmp_path: Path, harm: str) -> None:
    run, plan = make_run(tmp_path, {"a": True})
    write_journal(run, plan, [record(run, "a")])
    assert run.settle(Seen("ended")).verdict == "passed"
    artifact = run.path / "artifacts" / "a.txt"
    content = artifact.read_bytes()
    artifact.unlink()
    if harm == "change":
        artifact.write_bytes(content.upper())
    elif harm == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        artifact.symlink_to(tmp_path / "elsewhere")
    assert run.rejudge().stages[0].status == "invalid"


@pytest.mark.parametrize(
    "facts", [{"seconds": "x", "exit_code": []}, {"refused": "x"}, {"leftovers": [1, {}]}, {"files": 3}]
)
def test_a_record_of_any_shape_gives_a_report(tmp_path: Path, facts: dict[str, Any]) -> None:
    run, plan = make_run(tmp_path, {"a": True})
    write_journal(run, plan, [record(run, "a", **facts)])
    run.settle(Seen("ended"))
    assert "stage" in (run.path / "report.md").read_text()


ON_CUDA = "  - {name: g, run: [tool], when: [cuda], required: false, expect: {artifacts: [{path: g.txt}]}}\n"


def test_what_tests_have_not_shown_is_said(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"a": True})
    seen = (
        {"event": "start"},
        {"event": "phase", "id": "t", "when": "call", "outcome": "passed"},
        {"event": "phase", "id": "t", "when": "teardown", "outcome": "passed",
         "checks": {"ran": 0, "vacuous": "both are NaN"}},
        {"event": "assertions", "due": ["t.py:10"], "reached": ["t.py:9"]},
    )  # fmt: skip
    path = f"stages/a/{SESSIONS}/1.jsonl"
    write_files(run.path, {path: "".join(f"{json.dumps(line)}\n" for line in seen)})
    told = record(run, "a")
    write_journal(run, plan, [{**told, "files": [*told["files"], describe(run.path, path)]}])
    result = run.settle(Seen("ended"))
    assert "1 test checked nothing; 1 assertion of passed tests never ran" in result.summary
    assert result.stages[0].notes == [
        "1 test passed whose checks could not fail, the first because both are NaN: t",
        "1 assertion of tests that passed never ran: t.py:10",
    ]


@pytest.mark.parametrize(
    ("extra", "facts", "begins"),
    [
        ("", None, "passed on CPU; 1 of 1 stage passed"),
        (ON_CUDA, {"used_cuda": True}, "passed on CUDA; 2 of 2 stages passed; 1 stage ran kernels on the GPU"),
        (
            ON_CUDA,
            {},
            "passed on CPU; 1 of 2 stages passed; optional and not passed: g; 0 stages ran kernels on the GPU",
        ),
        (ON_CUDA.replace("{artifacts", "{device: any, artifacts"), {}, "passed on CPU; 2 of 2 stages passed"),
        (ON_CUDA, {"exit_code": 1}, "passed on CPU; 1 of 2 stages passed; optional and not passed: g"),
        (ON_CUDA.replace("false", "true"), {"exit_code": 1}, "failed on CUDA; 1 of 2 stages passed"),
    ],
)
def test_a_gpu_that_no_stage_was_for_is_no_pass_on_cuda(
    tmp_path: Path, extra: str, facts: dict[str, Any] | None, begins: str
) -> None:
    run, plan = make_run(tmp_path, {"a": True}, extra, sm=90)
    write_journal(run, plan, [record(run, "a"), *([] if facts is None else [record(run, "g", **facts)])])
    assert run.settle(Seen("ended")).summary.startswith(begins)


def test_the_report_shows_what_matters_and_cannot_be_steered(tmp_path: Path) -> None:
    hostile = "</table><script>x</script> | \x1b[31m [a](b) `"
    run, plan = make_run(tmp_path, {"a": True}, "  - {name: g, run: [tool], when: [cuda], expect: {}}\n")
    write_journal(run, plan, [record(run, "a", signal=hostile)])
    result = run.settle(Seen("ended"))
    report = (run.path / "report.md").read_text()
    assert report.startswith("# FAILED: r on pod p")
    assert "1 CUDA stage not part of this run" in result.summary and result.left_out == ["g"]
    assert "NOT as in this commit" in report
    assert "judged by a runbook that the commit does not hold" in result.summary
    assert "<script>" not in report and "\x1b" not in report and "[a](b)" not in report
    assert "h\\<b\\>" in report and "c\\|d" in report
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert {f["path"] for f in manifest["files"]} == {
        "plan.json",
        "environment.json",
        "journal.jsonl",
        "artifacts/a.txt",
    }
