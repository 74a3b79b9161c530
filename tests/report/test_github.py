"""What GitHub gets of a run: a comment that is found again and fits, annotations that no stage can forge, JUnit."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.plan.plan import read_plan
from orchestrator.report import github, junit
from orchestrator.report.document import Bullets, Document, Lines, Link, Paragraph, Section, Strong, Table
from orchestrator.results import Result
from orchestrator.store.run_directory import RunDirectory
from tests.support import ROOT
from tests.support.results import result, stage

OLD = ROOT / "tests/data/format-1"


# --- a comment ---


def a_document(*sections: Section, items: int = 1) -> Document:
    lead = (Paragraph(Strong("1 of 2 stages passed")), Bullets(tuple(f"s{n} failed: why" for n in range(items))))
    return Document("FAILED: r on pod p", "failed", lead, sections)


MARK = github.marker("report", "nsa-validate", "on", "pi-4090")


def test_the_marker_is_one_line_that_stays_and_comes_before_the_verdict() -> None:
    first, _, rest = github.comment(a_document(), MARK).partition("\n")
    assert first == MARK == "<!-- nsa-pod report nsa-validate on pi-4090 -->"
    assert rest.startswith("\n## FAILED: r on pod p\n\n**1 of 2 stages passed**\n\n- s0 failed: why")


@pytest.mark.parametrize("name", ["--> <b>x</b>", "a\nb", "a--b", "\u202ex"])
def test_no_name_ends_the_marker(name: str) -> None:
    mark = github.marker("report", name)
    assert re.fullmatch(r"<!-- [\w. -]+ -->", mark) and "--" not in mark[4:-4]


@pytest.mark.parametrize("items", [1, 50_000])
def test_a_comment_fits_whatever_the_run_says_and_names_what_it_leaves_out(items: int) -> None:
    long = Section("Commands", (Lines(tuple("x" * 200 for _ in range(400))),))
    many = [Section(f"Part {n}", (Paragraph("y" * 400), *(Paragraph("z" * 400) for _ in range(30)))) for n in range(12)]
    text = github.comment(a_document(Section("Stages", (Paragraph("the stages"),)), long, *many, items=items), MARK)
    assert len(text) < 65_000 and "the stages" in text and "Too long for a comment: Commands" in text
    assert items == 1 or "49970 more sentences in the report" in text
    assert text.count("<details>") == text.count("</details>") > 1


def test_a_comment_calls_nobody_and_links_to_nothing_that_is_not_there() -> None:
    rows = ((("see ", Link("stdout", "stages/a/stdout")), Link("log", "x")),)
    section = Section("Stages", (Paragraph("@alice and triton@cuda, (@bob/c)"), Table(("what", "logs"), rows)))
    text = github.comment(a_document(section), MARK)
    assert not re.search(r"(?<![\w])@[A-Za-z]", text.replace("@<!-- -->", "")) and "triton@cuda" in text
    assert "](" not in text and "see `stdout` |" in text and "log" not in text


# --- annotations ---


def annotations(of: Result) -> str:
    return github.annotations(of, of.error or of.summary)


def test_a_failure_stands_at_its_place_in_the_code() -> None:
    failure = {"id": "t.py::test_a", "error": ["assert 6 == 4"], "place": "t.py:6", "line": "", "outcome": "failed"}
    tests = stage("tests", "failed", failures=[{**failure, "called_from": None}])
    told = annotations(result(tests, stage("b", "blocked"), stage("o", "failed", required=False)))
    assert told.splitlines() == [
        "::error title=nsa-pod%3A failed::failed on CPU",
        "::error file=t.py,line=6,title=tests failed::t.py::test_a; assert 6 == 4",
        "::warning title=b blocked::why b",
        "::warning title=o failed::why o",
    ]


def test_a_green_run_has_a_notice() -> None:
    told = annotations(result(stage("a", "passed"), verdict="passed"))
    assert told == "::notice title=nsa-pod%3A passed::passed on CPU\n"


def test_what_has_no_verdict_is_no_error_unless_something_failed() -> None:
    assert annotations(result(stage("a", "passed"), verdict=None)) == "::notice title=nsa-pod::None on CPU\n"
    assert annotations(result(stage("a", "failed"), verdict=None)).startswith("::error title=nsa-pod::")


def test_no_text_of_a_stage_is_a_command_to_the_runner() -> None:
    evil = "x\n::add-mask::a\r\n%0A::error::b,title=c"
    failure = {"id": evil, "error": [evil], "place": f"{evil}:6", "line": "", "outcome": "failed", "called_from": None}
    told = annotations(result(stage(evil, "failed", reason=evil, failures=[failure]), error=evil))
    assert len(told.splitlines()) == 2 and all(line.startswith("::error ") for line in told.splitlines())
    properties = told.splitlines()[1].split("::", 2)[1]
    assert properties.count(",") == 2 and "%0A" not in properties.replace("%250A", "")


def test_no_more_are_given_than_github_shows() -> None:
    told = annotations(result(*(stage(f"s{n}", "failed") for n in range(40))))
    assert told.count("::error ") == 10


# --- JUnit ---


def cases(text: str) -> dict[str, ET.Element]:
    return {f"{c.get('classname')}/{c.get('name')}": c for c in ET.fromstring(text.encode()).iter("testcase")}


def test_junit_holds_the_verdict_every_stage_and_its_tests() -> None:
    plan = read_plan((OLD / "plan.json").read_text(), "plan.json")
    found = RunDirectory(OLD, "format-1").rejudge()
    text = junit.render(found, plan, OLD)
    told = cases(text)
    assert told["nsa-pod/verdict"].find("failure") is not None
    for one in found.stages:
        case = told[f"nsa-pod/{one.name}"]
        assert (len(case) == 0) == (one.status == "passed"), one.name
        assert one.status in ("passed", "skipped") or one.status in case[0].get("message", "")
    assert told["fails.tests/test_bad.py/test_wrong"].find("failure") is not None
    assert told["skips.tests/test_ok.py/test_c"].find("skipped") is not None
    for suite in ET.fromstring(text.encode()).iter("testsuite"):
        kinds = [case.find(kind) is not None for case in suite for kind in ("failure", "error", "skipped")]
        assert int(suite.get("tests", 0)) == len(suite) and sum(kinds) == sum(
            int(suite.get(name, 0)) for name in ("failures", "errors", "skipped")
        )


@pytest.mark.parametrize("status", ["skipped", "blocked", "not_run", "cancelled"])
def test_what_did_not_run_is_not_green_in_junit(status: str, tmp_path: Path) -> None:
    """Readers of JUnit count what is skipped as good."""
    plan = read_plan((OLD / "plan.json").read_text(), "plan.json")
    shutil.copy(OLD / "journal.jsonl", tmp_path)
    name = plan["stages"][0]["name"]
    for required, kind in ((True, "error"), (False, "skipped")):
        told = junit.render(result(stage(name, status, required=required), verdict="incomplete"), plan, tmp_path)
        assert cases(told)[f"nsa-pod/{name}"].find(kind) is not None
        assert cases(told)["nsa-pod/verdict"].find("error") is not None
