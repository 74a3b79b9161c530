"""A whole run as one JUnit file: the verdict, each stage, and each of its tests, for those who read no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from orchestrator.results import Result, StageResult, read_events
from orchestrator.shared import stage_record
from orchestrator.shared.plan import Plan
from orchestrator.shared.stage_record import Evidence
from orchestrator.text import plain
from orchestrator.verdict.case import Case, Run
from orchestrator.verdict.status import MEANINGS

_OUTCOMES = {
    "passed": None, "failed": "failure", "error": "error", "unfinished": "error", "skipped": "skipped",
    "idle": "skipped", "xfailed": "skipped", "xpassed": "skipped",
}  # fmt: skip
"""What becomes of a test's outcome: the stage's own status says what that means."""


def render(result: Result, plan: Plan, directory: Path) -> str:
    """Of the run in `directory`. Nothing in it is green that the verdict does not call passed."""
    root = ET.Element("testsuites", name=plain(f"{result.runbook.get('name')} on pod {result.pod}"))
    if result.verdict or result.error:
        _verdict(ET.SubElement(root, "testsuite", name="verdict"), result)
    records = stage_record.by_stage(read_events(directory))
    stages = {stage["name"]: stage for stage in plan["stages"]}
    for stage in result.stages:
        suite = ET.SubElement(root, "testsuite", name=plain(stage.name))
        _stage(suite, stage)
        case = Case(Run(directory, plan["format"]), stages[stage.name], _record(records.get(stage.name)))
        for test in case.session.tests.values():
            file, _, name = test.id.partition("::")
            _case(suite, f"{stage.name}.{file}", name or file, _OUTCOMES.get(test.outcome, "error"), test.reason)
    for suite in root:
        suite.attrib.update(_counts(suite))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _record(told: object) -> Evidence | None:
    """None for none, and for one that is malformed: the stage's status says so."""
    try:
        return None if told is None else stage_record.read(told)
    except ValueError:
        return None


def _verdict(suite: ET.Element, result: Result) -> None:
    kind = {"passed": None, "failed": "failure"}.get(result.verdict or "error", "error")
    _case(suite, "nsa-pod", "verdict", kind, result.error or result.summary, seconds=result.seconds)


def _stage(suite: ET.Element, stage: StageResult) -> None:
    """The stage itself. One that is required and did not run is an error: readers take what is skipped for green."""
    kind = {"passed": None, "failed": "failure"}.get(MEANINGS[stage.status].makes, "error")
    if kind and not stage.required:
        kind = "skipped"
    reason = f"{stage.status}: {stage.reason}" if stage.reason else stage.status
    _case(suite, "nsa-pod", stage.name, kind, reason, seconds=stage.seconds)


def _case(
    suite: ET.Element, of: str, name: str, kind: str | None, message: str, *, seconds: float | None = None
) -> None:
    case = ET.SubElement(suite, "testcase", classname=plain(of), name=plain(name))
    if seconds is not None:
        case.set("time", f"{seconds:.3f}")
    if kind:
        ET.SubElement(case, kind, message=plain(message, 1000))


def _counts(suite: ET.Element) -> Mapping[str, str]:
    cases = list(suite)
    return {"tests": str(len(cases)), **dict(_of_kinds(cases))}


def _of_kinds(cases: list[ET.Element]) -> Iterator[tuple[str, str]]:
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        yield name, str(sum(case.find(kind) is not None for case in cases))
