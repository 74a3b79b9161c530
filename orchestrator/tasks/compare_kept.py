"""Compare two runs that are kept on this laptop."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.figures import Figures, of_run
from orchestrator.figures.kept import Kept, differing
from orchestrator.store.run_directory import RunDirectory, find

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
    """What differs between them, with the figures of stages that passed."""
    return differing(_figures_of(a), _figures_of(b))


def _figures_of(run: RunDirectory) -> Figures:
    """What a kept run measured, by what its stages are when they are judged again: its files may have changed since."""
    statuses = {stage.name: stage.status for stage in run.rejudge().stages}
    return of_run(run.path, run.plan(), statuses)


def _is_run(name: str) -> bool:
    return bool(_RUN_ID.fullmatch(name)) or (Path(name) / "plan.json").is_file()
