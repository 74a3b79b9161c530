"""What the last passed run of a runbook had and this one has not: where a test is taken away, nothing fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.errors import IntegrityError
from orchestrator.plan.plan import read_plan
from orchestrator.results.judge import read_events
from orchestrator.results.model import Result
from orchestrator.shared import stage_record
from orchestrator.shared.plan import Plan
from orchestrator.text import count, listing
from orchestrator.verdict.case import Case, Run
from orchestrator.verdict.outcomes import Session


class _Kept(NamedTuple):
    """A run's plan, and by stage the tests of those that ended."""

    plan: Plan
    sessions: dict[str, Session]


def is_base(told: Mapping[str, Any], result: Result) -> bool:
    """Whether an earlier run, by its result.json, passed with the same runbook on the same pod, of another tree."""
    runbook = told.get("runbook")
    name = runbook.get("name") if isinstance(runbook, dict) else None
    then = (told.get("verdict"), told.get("pod"), name)
    return then == ("passed", result.pod, result.runbook["name"]) and told.get("tree") != result.tree


def notes(result: Result, directory: Path, before: Path) -> list[str]:
    """As sentences, of stages that passed in the run in `directory`; none where one of the two cannot be read."""
    try:
        return list(_lacks(result, _read(directory), _read(before)))
    except (IntegrityError, OSError, ValueError, RecursionError):
        return []


def _read(directory: Path) -> _Kept:
    plan = read_plan((directory / "plan.json").read_text(errors="replace"), str(directory / "plan.json"))
    records = stage_record.by_stage(
        read_events(directory, keep=lambda event, line: event["event"].startswith("stage_"))
    )
    ended = (stage for stage in plan["stages"] if stage["name"] in records)
    cases = (Case(Run(directory), stage, stage_record.read(records[stage["name"]])) for stage in ended)
    return _Kept(plan, {case.stage["name"]: case.session for case in cases})


def _lacks(result: Result, now: _Kept, before: _Kept) -> Iterator[str]:
    then = f"the last passed run of this runbook on pod {result.pod} (commit {before.plan['commit'][:7]})"
    stages = {stage["name"]: stage for stage in now.plan["stages"]}
    gone = before.sessions.keys() - stages.keys() - {stage["name"] for stage in now.plan["left_out"]}
    if gone:
        yield f"{then} had {count(len(gone), 'stage')} that this one has not: {listing(sorted(gone))}"
    for stage in before.plan["stages"]:
        name = stage["name"]
        if result.statuses.get(name) != "passed" or name not in before.sessions:
            continue
        # Artifacts may be named after their commit.
        asked = {key: value for key, value in stage["expect"].items() if key != "artifacts"}
        other = [key for key, value in asked.items() if stages[name]["expect"].get(key) != value]
        if other:
            yield f"{name} was asked for something else in {then}: {listing(other)}"
        yield from _fewer_tests(name, now.sessions[name], before.sessions[name], then)
        yield from _fewer_assertions(name, now.sessions[name], before.sessions[name], then)


def _fewer_tests(stage: str, now: Session, before: Session, then: str) -> Iterator[str]:
    """Which are not there any more; of those that were left out this time, others tell."""
    here = {*now.tests, *now.deselected, *now.not_collected}
    gone = {test.id for test in before.with_outcome("passed")} - here
    new = len(here - before.tests.keys())
    if gone:
        others = f", and has {new} that were not in it" if new else ""
        yield f"{stage} lacks {count(len(gone), 'test')} that passed in {then}{others}: {listing(sorted(gone))}"


def _fewer_assertions(stage: str, now: Session, before: Session, then: str) -> Iterator[str]:
    """How many ran in the files that are still there, each where it stands once."""
    here, were = (Counter(place.rpartition(":")[0] for place in session.reached) for session in (now, before))
    fewer = [f"{file} ({here[file]}, not {were[file]})" for file in sorted(were) if 0 < here[file] < were[file]]
    if fewer:
        yield f"fewer assertions of {stage} ran than in {then}: {listing(fewer)}"
