"""Bring a commit's exact tree to the pod, or a folder's files, verified there by git's own hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ContactLost, InputError, IntegrityError, PodError, PodFull
from orchestrator.files import Writer
from orchestrator.git.checkout import Change, Stream, change
from orchestrator.git.folder import Folder
from orchestrator.git.repository import Contents, Repository, Revision
from orchestrator.pod.client import Agent
from orchestrator.pod.patience import Patience
from orchestrator.shared.answers import AdoptedTree, Trees
from orchestrator.shared.plan import Submodule
from orchestrator.shared.tree import tree_hash

_MOST_BASES = 20
_NAME_DIGITS = 16


@dataclass(frozen=True)
class PushStats:
    """What a push moved: files whose content crossed the wire, and their bytes."""

    files: int
    bytes: int


def sync(agent: Agent, repo: Repository, revision: Revision, contents: Contents) -> PushStats | None:
    """Make trees/<tree hash> on the pod; what was moved, or None if it was there already.

    Only what differs from the nearest tree on the pod is sent, and of that only what no earlier attempt has brought. A
    tree that somebody has changed there is replaced: runs go on in copies of their own, and none starts from it.
    IntegrityError if what arrived is not the tree.
    """
    target = _Target(agent, f"{agent.workdir}/trees", revision.tree, contents.submodules)
    found = target.look()
    if found["whole"]:
        return None
    there = [tree for tree in found["trees"] if tree != revision.tree]
    base = repo.nearest(revision.tree, there[:_MOST_BASES])
    difference = _difference(repo, base, contents) if base else None
    if base and difference:
        with suppress(PodError):  # the tree that it began with is not what its name says, or has just been dropped
            return target.push(Stream.of(difference), base)
    return target.push(Stream.of(Change(contents.files, ())), None)


def bring_folder(agent: Agent, folder: Path, top: str) -> str:
    """The files of `folder` on the pod, as a directory below `top` that has their hash as its name; where that is."""
    files = Folder(folder).files
    name = tree_hash({path: (entry.mode, entry.blob) for path, entry in files.items()})
    target = _Target(agent, f"{agent.workdir}/{top}", name, ())
    if not target.look()["whole"]:
        target.push(Stream.of(Change(files, ())), None)
    return f"{target.trees}/{name}"


def _difference(repo: Repository, base: str, contents: Contents) -> Change | None:
    """What to do to `base`; None where the whole tree is the easier way."""
    try:
        return change(repo.contents_of_tree(base).files, contents.files)
    except InputError:  # a submodule of that tree is not in this clone any more
        return None


@dataclass(frozen=True)
class _Target:
    """A tree that is to be in the directory `trees` of the pod."""

    agent: Agent
    trees: str
    tree: str
    submodules: Sequence[Submodule]

    def look(self) -> Trees:
        """Which trees are on the pod, and whether this one is still what its name says."""
        return self.agent.call(Trees, "trees", self.trees, *self._expected())

    def push(self, stream: Stream, base: str | None) -> PushStats:
        """Send what differs from `base`, and go on over another connection as long as that brings it further; the pod
        verifies the whole before it gets its name.
        """
        name = hashlib.sha256(f"{base} ".encode() + stream.head).hexdigest()[:_NAME_DIGITS]
        patience = Patience()

        def send(out: Writer, at: int) -> None:
            patience.reached(at)
            self.agent.reached(name, at)
            stream.write(out, at)

        while True:
            try:
                self._supply(send, "--stream", name, *(("--base", base) if base else ()))
                return PushStats(*stream.amount)
            except ContactLost as error:
                patience.lost(error)

    def _supply(self, send: Callable[[Writer, int], None], *options: str) -> None:
        try:
            self.agent.supply(AdoptedTree, send, "bring-tree", self.trees, *self._expected(), *options)
        except PodFull:
            raise
        except PodError as error:
            raise IntegrityError(str(error)) from error

    def _expected(self) -> tuple[str, ...]:
        return ("--tree", self.tree, "--submodules", json.dumps(self.submodules))
