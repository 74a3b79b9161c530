"""What the last passed runs of a runbook had and this one has not: where a test is taken away, or made weaker, nothing
fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.errors import IntegrityError
from orchestrator.plan.plan import read_plan
from orchestrator.results import launched
from orchestrator.results.judge import read_events
from orchestrator.results.model import Result
from orchestrator.results.weaker import weaker
from orchestrator.shared import stage_record
from orchestrator.shared.files import read_json
from orchestrator.shared.plan import Plan
from orchestrator.text import count, listing
from orchestrator.verdict.case import Case, Run
from orchestrator.verdict.outcomes import Session

MOST = 3
"""Runs that one is held against: the last is what is spoken of, those before it tell what differs from run to run."""


class _Kept(NamedTuple):
    """A run's plan, and by name the stages that passed."""

    plan: Plan
    stages: dict[str, launched.Stage]


def is_base(told: Mapping[str, Any], result: Result) -> bool:
    """Whether an earlier run, by its result.json, passed with the same runbook on the same pod, of another tree; one
    that was asked for a part of the stages says nothing of the others.
    """
    runbook = told.get("runbook")
    origin = runbook if isinstance(runbook, dict) else {}
    then = (told.get("verdict"), told.get("pod"), origin.get("name"), origin.get("partial", False))
    return then == ("passed", result.pod, result.runbook["name"], False) and told.get("tree") != result.tree


def notes(result: Result, directory: Path, before: Iterable[Path]) -> list[str]:
    """As sentences, of stages that passed in the run in `directory`; `before` are those that are its bases, the last
    one first. None where it cannot be read, and of what cannot be of those.
    """
    bases = [*filter(None, map(_readable, before))]
    now = _readable(directory, result.statuses) if bases else None
    return [*_lacks(result, now, bases)] if now else []


def _readable(directory: Path, statuses: Mapping[str, str] | None = None) -> _Kept | None:
    with suppress(IntegrityError, OSError, ValueError, LookupError, TypeError, RecursionError):
        return _read(directory, statuses or _statuses(directory))
    return None


def _statuses(directory: Path) -> dict[str, str]:
    return {stage["name"]: stage["status"] for stage in read_json(directory / "result.json")["stages"]}


def _read(directory: Path, statuses: Mapping[str, str]) -> _Kept:
    plan = read_plan((directory / "plan.json").read_text(errors="replace"), str(directory / "plan.json"))
    records = stage_record.by_stage(
        read_events(directory, keep=lambda event, line: event["event"].startswith("stage_"))
    )
    passed = (stage for stage in plan["stages"] if statuses.get(stage["name"]) == "passed")
    cases = (Case(Run(directory), stage, stage_record.read(records[stage["name"]])) for stage in passed)
    return _Kept(plan, {case.stage["name"]: launched.Stage(case.session, case.execution) for case in cases})


def _lacks(result: Result, now: _Kept, bases: Sequence[_Kept]) -> Iterator[str]:
    """Of each stage by the last run in which it passed, too."""
    stages = {stage["name"] for stage in (*now.plan["stages"], *now.plan["left_out"])}
    gone = bases[0].stages.keys() - stages
    if gone and not result.runbook.get("partial"):
        had = f"{_then(result, bases[0])} had {count(len(gone), 'stage')} that this one has not"
        yield f"{had}: {listing(sorted(gone))}"
    for name, stage in now.stages.items():
        with_stage = [base for base in bases if name in base.stages]
        if with_stage:
            then, before = _then(result, with_stage[0]), [base.stages[name] for base in with_stage]
            yield from _asked_otherwise(name, now.plan, with_stage[0].plan, then)
            yield from _fewer_tests(name, stage.session, before[0].session, then)
            yield from _fewer_assertions(name, stage.session, before[0].session, then)
            yield from weaker(name, stage.session, [each.session for each in before], then)
            yield from launched.fewer(name, stage, before, then)


def _then(result: Result, base: _Kept) -> str:
    return f"the last passed run of this runbook on pod {result.pod} (commit {base.plan['commit'][:7]})"


def _asked_otherwise(stage: str, now: Plan, before: Plan, then: str) -> Iterator[str]:
    here, were = (next(each["expect"] for each in plan["stages"] if each["name"] == stage) for plan in (now, before))
    # Artifacts may be named after their commit.
    other = [key for key, value in were.items() if key != "artifacts" and here.get(key) != value]
    if other:
        yield f"{stage} was asked for something else in {then}: {listing(other)}"


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
