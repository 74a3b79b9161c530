"""Results as judging leaves them, for what reports make of them."""

from __future__ import annotations

from typing import Any

from orchestrator.results import Result, StageResult


def stage(name: str, status: str, **over: Any) -> StageResult:
    facts = {"name": name, "status": status, "reason": f"why {name}", "required": True, "cuda": False, "seconds": 1.0}
    return StageResult.model_validate({**facts, **over})


def result(*stages: StageResult, verdict: str | None = "failed", **over: Any) -> Result:
    facts = {
        "verdict": verdict, "summary": f"{verdict} on CPU", "state": "ended", "commit": "c", "tree": "t",
        "dirty": False, "pod": "p", "run_id": "r", "path": "runs/r", "runbook": {"name": "r"}, "left_out": [],
        "left_out_reasons": {},
    }  # fmt: skip
    return Result.model_validate({**facts, "stages": stages, **over})
