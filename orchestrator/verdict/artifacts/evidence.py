"""Artifacts as evidence: those that were asked for are there, whole, and as asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, List, Optional

from orchestrator.shared.files import Refused, clause
from orchestrator.shared.stage_record import File
from orchestrator.shared.text import listing, plain
from orchestrator.verdict.artifacts import asked as asking
from orchestrator.verdict.artifacts.kind import Finding, Weight

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case


def asked(case: Case) -> List[asking.Asked]:
    return list(case.expect.get("artifacts") or ())


def found(case: Case) -> List[Finding]:
    """What is wrong with each, in their order, as sentences; what the format of the run knows."""
    return [
        finding._replace(sentence=f"artifact {artifact['path']} {finding.sentence}")
        for artifact in asked(case)
        for finding in _wrong_with(case, artifact)
        if finding.since <= case.run.format and (finding.weight != "elsewhere" or case.run.devices == frozenset())
    ]


def problems(case: Case) -> Iterator[Optional[str]]:
    """What is wrong with them, whatever its weight: the rules that know one come first."""
    return (finding.sentence for finding in case.artifacts)


def of_weight(case: Case, weight: Weight) -> Iterator[Optional[str]]:
    """What is wrong with them and weighs as much."""
    return (finding.sentence for finding in case.artifacts if finding.weight == weight)


def doubts(case: Case) -> Iterator[Optional[str]]:
    """What shows that an artifact is not this stage's, or cannot be."""
    if case.evidence["overwritten"]:
        yield f"it changed files that earlier stages had delivered: {listing(case.evidence['overwritten'])}"
    for artifact in case.evidence["artifacts"]:
        if artifact["existed_before"]:
            yield f"artifact {artifact['path']} was there before the stage"
    for path in case.evidence["older"]:
        yield f"artifact {plain(path, 120)} is older than the stage: it was written before, and copied or moved here"
    reproducible = {artifact["path"] for artifact in asked(case) if artifact.get("reproducible")}
    for path, file in case.evidence["equal_to_committed"].items():
        if path not in reproducible:
            yield (
                f"artifact {plain(path, 120)} equals {plain(file, 120)}, a file of the commit: expected one that only "
                "the stage can have made; if it makes the same each time, say `reproducible: true` beside its path"
            )
    for path, source in case.evidence["borrowed"].items():
        if path not in reproducible:
            yield (
                f"artifact {plain(path, 120)} {plain(source, 300)}: expected one that only the stage can have made; if "
                "it makes the same each time, say `reproducible: true` beside its path"
            )
    if case.run.format > 1:
        yield from of_weight(case, "borrowed")
        yield from of_weight(case, "impossible")
        yield from of_weight(case, "elsewhere")


def delivered(case: Case) -> List[File]:
    """Those that are there; their paths are relative to artifacts/."""
    if case.record is None:
        return []
    found = ((artifact["path"], case.recorded(f"artifacts/{artifact['path']}")) for artifact in asked(case))
    return [{"path": path, "bytes": f["bytes"], "sha256": f["sha256"]} for path, f in found if f is not None]


def _wrong_with(case: Case, artifact: asking.Asked) -> Iterator[Finding]:
    path, source = artifact["path"], artifact.get("from") or ""
    problem = next((a["problem"] for a in reversed(case.evidence["artifacts"]) if a["path"] == path), None)
    cut = case.evidence["truncated"].get(source)
    if problem:
        yield Finding(problem)
    elif cut:
        yield Finding(f"is not whole: {cut} bytes of {source} were cut")
    elif case.recorded(f"artifacts/{path}") is None:
        yield Finding("is missing")
    else:
        yield from _content(case, artifact)


def _content(case: Case, artifact: asking.Asked) -> Iterator[Finding]:
    try:
        with case.open(f"artifacts/{artifact['path']}") as f:
            yield from asking.findings(artifact, f)
    except (Refused, OSError) as e:
        yield Finding(clause(e))
