"""Artifacts as evidence: those that were asked for are there, whole, and as asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, List, Optional

from orchestrator.shared.files import Refused, clause
from orchestrator.shared.stage_record import File
from orchestrator.shared.text import listing
from orchestrator.verdict.artifacts import asked as asking

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case


def asked(case: Case) -> List[asking.Asked]:
    return list(case.expect.get("artifacts") or ())


def problems(case: Case) -> Iterator[Optional[str]]:
    """What is wrong with each, in their order."""
    delivered = {artifact["path"]: artifact["problem"] for artifact in case.evidence["artifacts"]}
    for artifact in asked(case):
        path, cut = artifact["path"], case.evidence["truncated"].get("stdout")
        if delivered.get(path):
            yield f"artifact {path} {delivered[path]}"
        elif artifact.get("from") == "stdout" and cut:
            yield f"artifact {path} is not whole: {cut} bytes of stdout were cut"
        else:
            yield _content(case, artifact)


def doubts(case: Case) -> Iterator[Optional[str]]:
    """What shows that an artifact is not this stage's."""
    if case.evidence["overwritten"]:
        yield f"it changed files that earlier stages had delivered: {listing(case.evidence['overwritten'])}"
    for artifact in case.evidence["artifacts"]:
        if artifact["existed_before"]:
            yield f"artifact {artifact['path']} was there before the stage"


def delivered(case: Case) -> List[File]:
    """Those that are there; their paths are relative to artifacts/."""
    if case.record is None:
        return []
    found = ((artifact["path"], case.recorded(f"artifacts/{artifact['path']}")) for artifact in asked(case))
    return [{"path": path, "bytes": f["bytes"], "sha256": f["sha256"]} for path, f in found if f is not None]


def _content(case: Case, artifact: asking.Asked) -> Optional[str]:
    path = f"artifacts/{artifact['path']}"
    if case.recorded(path) is None:
        return f"artifact {artifact['path']} is missing"
    try:
        with case.open(path) as f:
            wrong = asking.problem(artifact, f)
    except (Refused, OSError) as e:
        wrong = clause(e)
    return f"artifact {artifact['path']} {wrong}" if wrong else None
