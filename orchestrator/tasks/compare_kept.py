"""Compare two runs that are kept on this laptop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from orchestrator.errors import InputError
from orchestrator.figures import Figures, of_run
from orchestrator.figures.kept import Kept, differing
from orchestrator.shared.files import read_json
from orchestrator.store.run_directory import RunDirectory, find
from orchestrator.verdict.status import Status

_RUN_ID = re.compile(r"\d{8}-\d{6}(-[0-9a-f]+)*-?")


def two_runs(artifacts: Path, repo: Path, a: str, b: str) -> tuple[RunDirectory, RunDirectory] | None:
    """The runs that are meant, by run ids or directories; None where commits are. InputError for one of each."""
    is_run = [_is_run(name) for name in (a, b)]
    if all(is_run):
        return find(artifacts, repo, a), find(artifacts, repo, b)
    if any(is_run):
        raise InputError(f"expected two commits or two runs, got {a} and {b}")
    return None


def compare(a: RunDirectory, b: RunDirectory) -> Kept:
    """What differs between them, with the figures of stages that passed when the runs were settled."""
    return differing(figures_of(a), figures_of(b))


def figures_of(run: RunDirectory) -> Figures:
    """What a kept run measured, by the statuses that it was settled with; none of one that was not."""
    settled = read_json(run.path / "result.json").get("stages")
    told = settled if isinstance(settled, list) else []
    statuses = {str(stage.get("name")): cast(Status, stage.get("status")) for stage in told if isinstance(stage, dict)}
    return of_run(run.path, run.plan(), statuses)


def _is_run(name: str) -> bool:
    return bool(_RUN_ID.fullmatch(name)) or (Path(name) / "plan.json").is_file()
