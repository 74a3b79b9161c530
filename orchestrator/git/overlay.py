"""A commit with some files of another: what measures both sides of a comparison must be the same."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.git.repository import Entry, Repository, Revision, run
from orchestrator.text import plain

_NAME = "nsa-pod"
_GONE = "0" * 40


def overlaid(repo: Repository, base: Revision, files: Mapping[str, Entry | None], message: str) -> Revision:
    """`base` with these files laid over it (None: without it), as a commit over `base`; itself if that changes nothing.

    The same files give the same commit. Its objects stay in the repository, where no reference leads to them, until
    git collects them. Raises InputError for what git cannot write, and for files of submodules.
    """
    for path, entry in files.items():
        if entry and entry.store != repo:
            raise InputError(f"{path} is a file of a submodule, which cannot be laid over another commit")
    with tempfile.TemporaryDirectory(prefix="nsa-pod-") as folder:
        there = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        _git(repo, there, "read-tree", base.tree)
        lines = (
            f"{entry.mode if entry else 0} {entry.blob if entry else _GONE}\t{path}" for path, entry in files.items()
        )
        _git(repo, there, "update-index", "-z", "--index-info", stdin=os.fsencode("".join(f"{x}\0" for x in lines)))
        tree = _git(repo, there, "write-tree")
    if tree == base.tree:
        return base
    moment = _git(repo, {}, "show", "-s", "--format=%ct +0000", base.commit)
    who = {f"GIT_{role}_{what}": _NAME for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    when = {f"GIT_{role}_DATE": moment for role in ("AUTHOR", "COMMITTER")}
    commit = _git(repo, {**who, **when}, "commit-tree", tree, "-p", base.commit, "-m", message)
    return Revision(commit, tree)


def _git(repo: Repository, variables: Mapping[str, str], *arguments: str, stdin: bytes = b"") -> str:
    done = run(["git", "--git-dir", str(repo.git_dir), *arguments], stdin, variables)
    if done.returncode != 0:
        raise InputError(f"{repo.root}: git {arguments[0]} failed: {plain(done.stderr.decode(errors='replace'), 300)}")
    return os.fsdecode(done.stdout).strip()
