"""A result on a terminal and in report.md: every cause is there, and nothing breaks inside a path or a word."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.report import markdown, screen, trouble
from orchestrator.report.run import artifacts, document, failures
from orchestrator.results import ArtifactResult, Result, Seen, StageResult
from tests.support import results
from tests.support.results import result
from tests.support.run_files import make_run, record, write_journal

LONG = "a/folder/with/a/rather/long/name/that/does/not/fit/on/a/line/of/eighty/characters/x.py"


def stage(name: str, status: str, **over: Any) -> StageResult:
    return results.stage(name, status, **{"reason": "", "command": ["tool", name], **over})


def shown(what: Result, width: int) -> list[str]:
    out = io.StringIO()
    screen.show(what, Console(file=out, width=width, highlight=False))
    return out.getvalue().splitlines()


FAILURE = {"error": ["assert 6 == 4", "+ where 6 = double(2)"], "place": "t.py:6", "line": "assert double(2) == 4"}
TESTS = stage(
    "tests",
    "failed",
    reason="t.py::test_a failed: assert 6 == 4",
    tests={"passed": 2, "failed": 1, "errors": 8, "skipped": 12},
    failures=[{**FAILURE, "id": "t.py::test_a", "outcome": "failed", "called_from": "t.py:2"}],
    causes=[
        {**FAILURE, "count": 1, "of": ["t.py::test_a"]},
        {"error": ["SyntaxError: invalid syntax"], "place": f"{LONG}:178", "line": "def f(:", "count": 8, "of": ["b"]},
    ],
    skips=[{"outcome": "skipped", "reason": "needs a GPU", "allowed": False, "count": 12, "first": "t.py::test_g"}],
    env={"A": "1", "B": "two words"},
)
BENCH = stage(
    "bench",
    "failed",
    reason="exit code 1: ValueError: bad shape (bench.py line 5)",
    exit_code=1,
    raised={"error": ["ValueError: bad shape"], "place": "bench.py:5", "line": "raise"},
    stderr_tail=["Traceback (most recent call last):", '  File "bench.py", line 5', "ValueError: bad shape"],
    stdout_tail=["warming up"],
    env={"A": "1"},
)
WAITS = [stage(name, "blocked", reason="needs bench", blocked_by="bench", env={"A": "1"}) for name in ("x", "y")]
GONE = stage("gone", "blocked", reason="gone.py is not in the commit", env={"A": "1"})
WHOLE = result(
    TESTS, BENCH, *WAITS, GONE, causes=[{"cause": "OSError: full", "count": 9, "stages": ["tests", "bench"]}]
)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_cause_is_on_the_terminal(width: int) -> None:
    lines = shown(WHOLE, width)
    text = re.sub(r"\s+", " ", "\n".join(lines))
    for cause in (
        "tests failed: 2 passed, 1 failed, 8 errors, 12 skipped",
        "t.py::test_a t.py:6: assert double(2) == 4 called from t.py:2 assert 6 == 4 + where 6 = double(2)",
        f"SyntaxError: invalid syntax ({LONG} line 178) {LONG}:178: def f(: the cause of 8: b",
        "12 skipped: needs a GPU (t.py::test_g and 11 more)",
        "bench failed: exit code 1: ValueError: bad shape (bench.py line 5) the end of its stderr: Traceback",
        "$ B='two words' tool tests",
        "in all stages: A=1",
        "x, y blocked by bench, which is failed",
        "gone blocked: gone.py is not in the commit",
        "OSError: full: the cause of 9 failures, in tests, bench",
    ):
        assert cause in text
    assert all(len(line) <= width or LONG in line or line.startswith("    ") for line in lines)


def test_what_ended_a_stage_is_said_beside_its_failed_tests() -> None:
    ended = TESTS.model_copy(update={"status": "timed_out", "reason": "still running at its limit of 60 s in t.py::b"})
    lines = shown(result(ended), 80)
    assert "tests timed_out: still running at its limit of 60 s in t.py::b" in lines and "  t.py::test_a" in lines


def test_every_cause_is_in_the_report() -> None:
    text = markdown.section(failures.attention(WHOLE, Path("/nowhere"))).replace("\\", "")
    for cause in (
        "- x, y blocked by bench, which is failed",
        "t.py::test_a\n\n    t.py:6: assert double(2) == 4\n    called from t.py:2\n    assert 6 == 4",
        f"SyntaxError: invalid syntax ({LONG} line 178)",
        "The end of its stderr:\n\n    Traceback (most recent call last):\n      File",
        "What ran:\n\n    A=1 B='two words' tool tests",
    ):
        assert cause in text


def test_the_commands_name_what_all_stages_have_once() -> None:
    lines = markdown.section(failures.commands(result(TESTS, BENCH))).split("\n")
    expected = ["# in all stages", "A=1", "", "# tests", "B='two words' tool tests", "", "# bench", "tool bench"]
    assert [line.strip() for line in lines[2:]] == expected


@pytest.mark.parametrize(
    ("over", "streams"),
    [
        ({"exit_code": 1}, ["stderr"]),
        ({"exit_code": 1, "stderr_tail": []}, ["stdout"]),
        ({"exit_code": 1, "raised": {"error": ["warming up"], "place": None, "line": ""}}, ["stdout"]),
        ({"status": "timed_out"}, ["stderr", "stdout"]),
        ({"exit_code": 0}, []),
    ],
)
def test_the_end_of_the_stream_that_tells_is_shown(over: dict[str, Any], streams: list[str]) -> None:
    tails = {"stderr_tail": ["went wrong"], "stdout_tail": ["warming up"]}
    (what,) = trouble.troubles(result(stage("s", **{"status": "failed", **tails, **over})))
    assert [output.stream for output in what.outputs] == streams


def csv_of(folder: Path, text: str, **over: Any) -> str:
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "b.csv").write_text(text)
    artifact = ArtifactResult(path="b.csv", bytes=1, sha256="0" * 64)
    shown = artifacts.tables(result(stage("bench", artifacts=[artifact], **{"status": "passed", **over})), folder)
    return markdown.section(shown)


def test_a_table_shows_what_varies_and_says_what_does_not(tmp_path: Path) -> None:
    rows = "".join(f"H200,{n},{n * 1.5},bf16\n" for n in range(20))
    text = csv_of(tmp_path, "device,S,ms,dtype\n" + rows)
    assert "| row | S | ms |" in text and "| 12 | 11 | 16.5 |" in text and "| 13 |" not in text
    assert "In all rows: device = H200; dtype = bf16" in text and "8 more rows in the file." in text


def test_the_row_that_a_check_did_not_hold_of_is_shown(tmp_path: Path) -> None:
    rows = "".join(f"{n}\n" for n in range(1, 31))
    text = csv_of(tmp_path, "S\n" + rows, status="failed", reason="artifact b.csv fails in row 30: S is 30")
    assert "of bench, which is failed" in text and "| 30 | 30 |" in text and "17 more rows in the file." in text


def test_a_table_of_one_row_or_of_many_columns_is_shown(tmp_path: Path) -> None:
    header, row = ",".join(f"c{n}" for n in range(20)), ",".join(map(str, range(20)))
    text = csv_of(tmp_path, f"{header}\n{row}\n")
    assert "| c0 | c1 |" in text and "4 more columns in the file: c16, c17, c18, c19" in text


def test_files_that_nobody_asked_for_are_listed_behind_the_others() -> None:
    asked, besides = (ArtifactResult(path=name, bytes=1, sha256="0" * 64) for name in ("a.txt", "b.txt"))
    shown = artifacts.files(result(stage("s", "passed", artifacts=[asked], unowed=[besides], unowed_more=7)))
    text = markdown.section(shown)
    assert re.findall(r"\[(.*?)\]\(artifacts/.*?\) \| s \| passed \| (\w+)", text) == [
        ("a.txt", "yes"),
        ("b.txt", "no"),
    ]
    assert "7 more files that nobody asked for." in text


def test_a_note_of_several_stages_is_said_once(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"one": True})
    write_journal(run, plan, [record(run, "one")])
    run.settle(Seen("ended"))
    (one,) = run.rejudge().stages
    noted = [
        one.model_copy(update={"name": name, "notes": [note]}) for name, note in (("a", "x"), ("b", "x"), ("c", "y"))
    ]
    told = markdown.render(document(run.rejudge().model_copy(update={"stages": noted}), plan, run.path))
    assert "- a, b: x\n- c: y\n" in told


def test_what_the_last_passed_run_had_stands_before_the_verdict() -> None:
    notes = [f"tests of s launched k{n} in X, and not now: t" for n in range(20)]
    lines = shown(result(stage("s", "passed"), verdict="passed", notes=notes), 80)
    assert lines.index(notes[0]) < lines.index("passed on CPU")
    assert notes[-1] not in lines and "and 12 more notes: see the report" in lines
