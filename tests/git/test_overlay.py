"""A commit with files of another: the tree is what git would make of it, and the repository stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.git.overlay import overlaid
from orchestrator.git.repository import Entry, Repository
from tests.support.repository import Git


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repo")


def test_files_are_laid_over_and_taken_away_and_nothing_else_changes(git: Git) -> None:
    git.commit({"bench.py": "old", "gone.py": "x", "code.py": "one", "sub/ü b.py": "1"})
    base = Repository.open(git.root).revision("HEAD")
    git.commit({"bench.py": "new", "code.py": "two", "sub/ü b.py": "2"})
    repo = Repository.open(git.root)
    theirs = repo.contents(repo.revision("HEAD")).files
    files: dict[str, Entry | None] = {name: theirs[name] for name in ("bench.py", "sub/ü b.py")}
    before = git("for-each-ref"), git("status", "--porcelain")
    made = overlaid(repo, base, {**files, "gone.py": None}, "b with a's bench")
    shown = {path: repo.blob_at(made.commit, path) for path in ("bench.py", "gone.py", "code.py", "sub/ü b.py")}
    assert shown == {"bench.py": b"new", "gone.py": None, "code.py": b"one", "sub/ü b.py": b"2"}
    assert git("log", "-1", "--format=%P %s", made.commit) == f"{base.commit} b with a's bench"
    assert overlaid(repo, base, {**files, "gone.py": None}, "b with a's bench") == made
    assert (git("for-each-ref"), git("status", "--porcelain")) == before


def test_the_same_files_leave_the_commit_as_it_is(git: Git) -> None:
    git.commit({"bench.py": "old"})
    repo = Repository.open(git.root)
    head = repo.revision("HEAD")
    assert overlaid(repo, head, {"bench.py": repo.contents(head).files["bench.py"], "absent": None}, "m") == head
