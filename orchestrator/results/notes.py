"""What a reader should know of a stage, whatever its status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.shared import telemetry
from orchestrator.shared.schema import first_error
from orchestrator.shared.stage_record import Built, Left
from orchestrator.text import count, listing, plain
from orchestrator.verdict import routes
from orchestrator.verdict.case import Run
from orchestrator.verdict.tests import NeverRan, Summary


def of(facts: Mapping[str, Any], run: Run, stage: str, taken: routes.Routes, tests: Summary) -> Iterator[str]:
    """All of the stage that the record `facts` is of, with the routes that it has taken and its `tests`."""
    yield from of_record(facts)
    yield from _of_tests(tests)
    yield from _at_their_word(run, taken)
    yield from telemetry.summaries(telemetry.read(run.directory / "stages" / stage / telemetry.FILE))


def _of_tests(tests: Summary) -> Iterator[str]:
    """What those that passed have not shown."""
    if tests.get("unchecked"):
        yield f"{count(tests['unchecked'], 'test')} passed without a check"
    vacuous = tests.get("vacuous")
    if vacuous:
        ids, first = listing(test["id"] for test in vacuous), vacuous[0]["reason"]
        yield f"{count(len(vacuous), 'test')} passed whose checks could not fail, the first because {first}: {ids}"
    never = tests.get("never_ran")
    if never and never["count"]:
        yield f"{count(never['count'], 'assertion')} of tests that passed never ran: {_some(never)}"


def left(facts: Mapping[str, Any]) -> Left | None:
    """What it left in the tree, if it left anything."""
    found = facts.get("left")
    if first_error(found, Left, "left") or not found["count"]:  # type: ignore[index]
        return None
    return Left(count=found["count"], first=[plain(path) for path in found["first"]])  # type: ignore[index]


def doubts(facts: Mapping[str, Any]) -> list[str]:
    """What the agent saw and nobody but a person can judge."""
    found = facts.get("doubts")
    return [plain(doubt) for doubt in found] if isinstance(found, list) else []


def of_record(facts: Mapping[str, Any]) -> Iterator[str]:
    """What the agent saw."""
    redacted = facts.get("redacted")
    for file, names in redacted.items() if isinstance(redacted, dict) else ():
        yield f"secret values were replaced in its {plain(file)}: {listing(names if isinstance(names, list) else [])}"
    for file in mappings(facts.get("refused")):
        yield f"{plain(file.get('path'))} was left out: {plain(file.get('reason'))}"
    unknown = facts["gpu"].get("unknown") if isinstance(facts.get("gpu"), dict) else None
    if unknown:
        yield f"whether someone else used the GPU could not be checked: {plain(unknown)}"
    strays = left(facts)
    if strays:
        yield f"left in the tree, and removed before the next stage: {_some(strays)}"
    built = facts.get("built")
    if built and not first_error(built, Built, "built"):
        yield f"built in the tree, for the stages after it: {_some(built)}"
    tree = facts.get("tree")
    set_back = tree.get("set_back") if isinstance(tree, dict) else None
    if isinstance(set_back, list) and set_back:
        yield f"data of the commit was written while it ran, and is as it was: {listing(set_back)}"
    outlived = [_outlived(process) for process in mappings(facts.get("leftovers"))]
    if outlived:
        yield f"processes that outlived it were ended: {listing(outlived)}"


def _some(told: Left | Built | NeverRan) -> str:
    """The first of them, and how many more there are."""
    more = told["count"] - len(told["first"])
    return ", ".join(map(plain, told["first"])) + (f" and {more} more" if more > 0 else "")


def _at_their_word(run: Run, taken: routes.Routes) -> Iterator[str]:
    for operation in routes.at_their_word(taken) if run.format > 1 else ():
        yield f"route.{plain(operation)} on the CPU is what its tests say: nothing there can be seen"


def _outlived(process: Mapping[str, Any]) -> str:
    held = process.get("gpu_mib")
    program, blank, rest = str(process.get("command")).partition(" ")
    command = program.rpartition("/")[2] + blank + rest
    return (f"(with {held} MiB of a GPU) " if isinstance(held, int) else "") + command


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The mappings in a list; the journal is the pod's, and need not hold what the agent writes."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
