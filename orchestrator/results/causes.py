"""What failures of several tests, or stages, have in common, and what blocked a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.results.model import CommonCause, StageResult
from orchestrator.shared.plan import Stage
from orchestrator.verdict.failures import Cause, key
from orchestrator.verdict.raised import sentence
from orchestrator.verdict.status import Status

_MOST = 20


def common(stages: Sequence[StageResult]) -> list[CommonCause]:
    """The causes of more than one failure, the most frequent first."""
    found: dict[tuple[str, str | None], CommonCause] = {}
    for name, cause in ((stage.name, cause) for stage in stages for cause in _of(stage)):
        shared = key(cause)
        if shared:
            whole = found.setdefault(shared, CommonCause(cause=sentence(cause), count=0, stages=[]))
            whole["count"] += cause["count"]
            whole["stages"].append(name)
    several = [cause for cause in found.values() if cause["count"] > 1]
    return sorted(several, key=lambda cause: -cause["count"])[:_MOST]


def blocked_by(stage: Stage, statuses: Mapping[str, Status], blockers: Mapping[str, str | None]) -> str | None:
    """The stage that a blocked one waited for in vain, at the beginning of the chain."""
    need = next((need for need in stage["needs"] if statuses.get(need) != "passed"), None)
    return need and (blockers.get(need) or need)


def _of(stage: StageResult) -> list[Cause]:
    return stage.causes or ([Cause(**stage.raised, count=1, of=[])] if stage.raised else [])
