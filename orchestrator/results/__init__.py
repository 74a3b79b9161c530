"""plan + journal + evidence -> Result."""

from orchestrator.results.judge import Seen, judge, read_events
from orchestrator.results.model import ArtifactResult, CommonCause, PlanSource, Result, StageResult

__all__ = [
    "ArtifactResult",
    "CommonCause",
    "PlanSource",
    "Result",
    "Seen",
    "StageResult",
    "judge",
    "read_events",
]
