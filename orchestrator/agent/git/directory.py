"""The .git of a run's tree: what a clone of depth 1 has, and the history up to the tag that `git describe` needs."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import zlib
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence

from orchestrator.agent.git import packs
from orchestrator.agent.git.index import index_of
from orchestrator.agent.host.removal import remove
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import snapshot
from orchestrator.shared.plan import CommitParts
from orchestrator.shared.tree import Manifest, entries, object_name, tree_objects, without_files

_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
_OBJECT = re.compile(rb"(commit|tag) (\d+)\0")
_PARENT = re.compile(rb"^parent ([0-9a-f]{40})$", re.MULTILINE)
_TAG_NAME = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\]+")
_REF = "ref: "


class GitDirectory:
    """Of the tree at `root`, whose files are `manifest`; `store` has the objects."""

    def __init__(self, root: Path, plan: CommitParts, manifest: Manifest, store: Path) -> None:
        """Failure if the plan's commit is not what it says."""
        self._root = root
        self._path = root / ".git"
        self._commit = plan["commit"]
        self._store = store
        self._listed = entries(manifest, plan["submodules"])
        self._empty = [root / path for path in without_files(plan["submodules"])]
        self._commits = _commits(plan)
        self._tags = self._add_objects(plan)
        self._made: Mapping[str, object] = {}

    def renew(self, *, stale: bool = False) -> None:
        """Make it anew, unless nobody has touched it since, nor (`stale`) the files that its index is of."""
        for empty in self._empty:  # as a clone has them; without, git takes the submodule for deleted
            with contextlib.suppress(OSError):  # what stands there instead is told as leftovers are
                empty.mkdir(parents=True, exist_ok=True)
        if not stale and self._made and snapshot(self._path) == self._made:
            return
        if os.path.lexists(self._path):
            remove(str(self._path))
        for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (self._path / folder).mkdir(parents=True)
        for name, text in self._files().items():
            (self._path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
        if self._commits:
            (self._path / "index").write_bytes(index_of(self._root, self._listed))
        self._made = snapshot(self._path)

    def is_at_commit(self) -> bool:
        """Whether HEAD still is the run's commit, on a branch or not."""
        head = self._read("HEAD")
        return (self._read(head[len(_REF) :]) if head.startswith(_REF) else head) == self._commit

    def _read(self, name: str) -> str:
        try:
            return (self._path / name).read_text(errors="replace").strip()
        except (OSError, ValueError):
            return ""

    def _files(self) -> Dict[str, str]:
        files = {"HEAD": f"{self._commit}\n", "config": _CONFIG, "objects/info/alternates": f"{self._store}\n"}
        if self._commits:
            boundary = _boundary(self._commits)
            files.update({"shallow": "".join(f"{commit}\n" for commit in boundary)} if boundary else {})
            files["packed-refs"] = "".join(f"{name} refs/tags/{tag}\n" for tag, name in sorted(self._tags.items()))
        return files

    def _add_objects(self, plan: CommitParts) -> Dict[str, str]:
        """Bring commits, tags, trees and blobs into the store; the tags whose object is among them."""
        ancestry = plan.get("ancestry")
        tags = [packs.Object(k, c) for k, c in _unpacked(ancestry["objects"]) if k == "tag"] if ancestry else []
        if not self._commits:  # of a plan that has no commit object nothing can be looked up
            return {}
        objects = [packs.Object("commit", content) for content in self._commits.values()]
        objects += [*tags, *(packs.Object("tree", content) for content in tree_objects(self._listed))]
        blobs = ((blob, self._root / path) for path, (mode, blob) in self._listed.items() if mode != "160000")
        packs.add(self._store, objects, blobs)
        there = {*self._commits, *(object_name("tag", bytes(tag.content)) for tag in tags)}
        named = ancestry["tags"].items() if ancestry else ()
        return {tag: name for tag, name in named if name in there and _TAG_NAME.fullmatch(tag)}


def _commits(plan: CommitParts) -> Dict[str, bytes]:
    """The commit objects of the plan by name, the run's own included; Failure if that is another than it says."""
    if not plan["commit_object"]:
        return {}
    commit, content = plan["commit"], base64.b64decode(plan["commit_object"], validate=True)
    if object_name("commit", content) != commit:
        raise Failure(f"the commit object in the plan is not that of {commit}")
    if not content.startswith(f"tree {plan['tree']}\n".encode()):
        raise Failure(f"the plan's tree {plan['tree']} is not that of its commit {commit}")
    ancestry = plan.get("ancestry")
    earlier = [c for kind, c in _unpacked(ancestry["objects"]) if kind == "commit"] if ancestry else []
    return {commit: content, **{object_name("commit", c): c for c in earlier}}


def _boundary(commits: Mapping[str, bytes]) -> List[str]:
    """Those whose parents are not here: git takes them for the beginning."""
    return [name for name, content in commits.items() if not set(_parents(content)) <= set(commits)]


def _parents(content: bytes) -> Sequence[str]:
    return [parent.decode() for parent in _PARENT.findall(content.partition(b"\n\n")[0])]


def _unpacked(text: str) -> Iterator[tuple[str, bytes]]:
    """(kind, content) of each object of a plan's ancestry."""
    if not text:
        return
    try:
        data = zlib.decompress(base64.b64decode(text, validate=True))
    except (ValueError, zlib.error) as e:
        raise Failure(f"the ancestry in the plan cannot be read: {e}") from e
    at = 0
    while at < len(data):
        head = _OBJECT.match(data, at)
        if not head:
            raise Failure("the ancestry in the plan cannot be read: it has no object where one should be")
        at = head.end() + int(head[2])
        yield head[1].decode(), data[head.end() : at]
