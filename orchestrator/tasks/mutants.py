"""The runbook's `mutants`: patches of the commit, or beside the runbook, applied to the tree while planning."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config.runbook import RunbookFile
from orchestrator.errors import InputError
from orchestrator.git.patches import DoesNotApply, applied
from orchestrator.git.repository import Repository
from orchestrator.plan.plan import Mutation


def find_mutants(repo: Repository, commit: str, file: RunbookFile) -> dict[str, Mutation]:
    """By the path of the patch, what it makes of the tree. InputError for a patch that is nowhere; one that does not
    apply is the evidence of its stage.
    """
    named = {mutant["patch"]: s.name for s in file.runbook.stages for mutant in s.expect.get("mutants", ())}
    return {path: _mutation(repo, commit, _patch(repo, commit, file, path, stage)) for path, stage in named.items()}


def _mutation(repo: Repository, commit: str, patch: bytes) -> Mutation:
    try:
        return Mutation(applied(repo, commit, patch))
    except DoesNotApply as e:
        return Mutation({}, str(e))


def _patch(repo: Repository, commit: str, file: RunbookFile, path: str, stage: str) -> bytes:
    """The patch as the commit holds it; else the file beside the runbook, whose folder may be part of its path."""
    committed = repo.blob_at(commit, path)
    if committed is not None:
        return committed
    folder = file.path.parent
    for place in (folder / path, folder.parent / path):
        if place.resolve().is_relative_to(folder.resolve()) and place.is_file():
            return _read(place)
    raise InputError(
        f"{file.path}: stage {stage!r} has the mutant {path}: expected a patch in the commit, or beside the runbook"
    )


def _read(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError as e:
        raise InputError(f"{place} cannot be read: {e.strerror}") from e
