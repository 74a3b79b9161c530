"""plan.json as the agent reads it: the format that it knows, under the hash in its run id."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.shared.failure import Failure

FORMAT = 1
_STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def plan_hash(plan: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the plan without its run id; the run id ends with the first eight digits."""
    content = {key: value for key, value in plan.items() if key != "run_id"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def load(run_dir: Path) -> dict[str, Any]:
    """The plan in `run_dir`; Failure if it is not whole, of another format, or not the one of this run id."""
    path = run_dir / "plan.json"
    try:
        plan = json.loads(path.read_bytes())
    except FileNotFoundError as e:
        raise Failure(f"{path} does not exist") from e
    except ValueError as e:
        raise Failure(f"{path} is not JSON: {e}") from e
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        raise Failure(f"{path} is not a plan of format {FORMAT}: ship the agent that belongs to it")
    run_id = plan.get("run_id")
    if run_id != run_dir.name:
        raise Failure(f"{path} is the plan of run {run_id}, expected that of {run_dir.name}")
    if not run_id.endswith("-" + plan_hash(plan)[:8]):
        raise Failure(f"{path} was changed: its content is not what run {run_id} was named after")
    for stage in plan["stages"]:
        if not _STAGE_NAME.fullmatch(stage["name"]):
            raise Failure(f"{path} has a stage called {stage['name']!r}: expected letters, digits, '_', '.', '-'")
    return plan
