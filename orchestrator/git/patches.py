"""A patch on a commit's tree: what its files hold with it. An index beside the repository finds it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator.git.repository import Repository, run
from orchestrator.text import plain

_SAID_LENGTH = 200
_GONE = "0" * 40
_LINK, _SUBMODULE = "120000", "160000"


class DoesNotApply(Exception):
    """The patch is not one of this tree; the message says what git says."""


def applied(repo: Repository, commit: str, patch: bytes) -> dict[str, bytes | None]:
    """The content of each file that `patch` changes in the commit's tree, None for one that it removes.

    Lines may have moved, as git allows.
    """
    with tempfile.TemporaryDirectory(prefix="nsa-pod-") as folder:
        there = _Index(repo, Path(folder))
        there.git("read-tree", commit)
        there.git("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch)
        listed = there.git("diff-index", "--cached", "--raw", "--no-renames", "--no-abbrev", "-z", commit)
        fields = os.fsdecode(listed).split("\0")
        found: dict[str, bytes | None] = {}
        for head, path in zip(fields[::2], fields[1::2], strict=False):
            _, mode, _, blob, _ = head.lstrip(":").split(" ")
            if mode in (_LINK, _SUBMODULE):
                raise DoesNotApply(f"{path} would be a link or a submodule: expected files")
            found[path] = None if blob == _GONE else there.git("cat-file", "blob", blob)
    if not found:
        raise DoesNotApply("it changes nothing")
    return found


class _Index:
    """Git with an index, and a place for new objects, in `folder`."""

    def __init__(self, repo: Repository, folder: Path) -> None:
        self._repo = repo
        objects = os.fsdecode(self.git_path(repo)).rstrip("\n")
        (folder / "objects").mkdir()
        self._variables: Mapping[str, str] = {
            "GIT_INDEX_FILE": str(folder / "index"),
            "GIT_OBJECT_DIRECTORY": str(folder / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
        }

    @staticmethod
    def git_path(repo: Repository) -> bytes:
        asked = ["git", "--git-dir", str(repo.git_dir), "rev-parse", "--path-format=absolute", "--git-path", "objects"]
        return run(asked).stdout

    def git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = run(["git", "--git-dir", str(self._repo.git_dir), *arguments], stdin, self._variables)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().replace("error: ", "").replace("\n", "; ")
            raise DoesNotApply(plain(said, _SAID_LENGTH))
        return done.stdout
