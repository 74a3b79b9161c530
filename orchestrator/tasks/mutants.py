"""The runbook's `mutants`: patches of the commit, or beside the runbook, applied to the tree while planning."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from orchestrator.config.runbook import RunbookFile
from orchestrator.config.yamlfile import Location
from orchestrator.errors import InputError, Together
from orchestrator.git.patches import DoesNotApply, applied
from orchestrator.git.repository import Repository
from orchestrator.plan.plan import Mutation


def find_mutants(repo: Repository, commit: str, file: RunbookFile) -> dict[str, Mutation]:
    """By the path of the patch, what it makes of the tree. InputErrors for patches that are nowhere; one that does not
    apply is the evidence of its stage.
    """
    named = {
        mutant["patch"]: ("stages", number, "expect", "mutants", position, "patch")
        for number, stage in enumerate(file.runbook.stages)
        for position, mutant in enumerate(stage.expect.get("mutants", ()))
    }
    steps = Together()
    patches = {path: steps.attempt(partial(_patch, repo, commit, file, path, at)) for path, at in named.items()}
    steps.finish()
    return {path: _mutation(repo, commit, patch) for path, patch in patches.items() if patch is not None}


def _mutation(repo: Repository, commit: str, patch: bytes) -> Mutation:
    try:
        return Mutation(applied(repo, commit, patch))
    except DoesNotApply as e:
        return Mutation({}, str(e))


def _patch(repo: Repository, commit: str, file: RunbookFile, path: str, at: Location) -> bytes:
    """The patch as the commit holds it; else the file beside the runbook, whose folder may be part of its path."""
    committed = repo.blob_at(commit, path)
    if committed is not None:
        return committed
    folder = file.path.parent
    for place in (folder / path, folder.parent / path):
        if place.resolve().is_relative_to(folder.resolve()) and os.path.isfile(place):  # False also for too long a name
            return _read(place)
    where = file.document.place(at)
    raise InputError(f"{where} expected a patch in the commit, or beside the runbook, and {path} is neither")


def _read(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError as e:
        raise InputError(f"{place} cannot be read: {e.strerror}") from e
