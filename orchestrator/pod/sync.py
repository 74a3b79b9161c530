"""Bring a commit's exact tree to the pod, or a folder's files, verified there by git's own hash."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.errors import ContactLost, InputError, IntegrityError, PodError, PodFull
from orchestrator.git.checkout import Change, Stream, change
from orchestrator.git.folder import Folder
from orchestrator.git.repository import Contents, Repository, Revision
from orchestrator.pod.client import Agent
from orchestrator.shared.answers import AdoptedTree, Trees
from orchestrator.shared.plan import Submodule
from orchestrator.shared.tree import tree_hash

_MOST_BASES = 20
_NAME_DIGITS = 16
# Somebody whose line went silent while he sent the same tree is waited for.
_LOOK_LIMIT_S = 150.0


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
            return target.push(Stream.of(difference), base, found)
    return target.push(Stream.of(Change(contents.files, ())), None, found)


def bring_folder(agent: Agent, folder: Path, top: str) -> str:
    """The files of `folder` on the pod, as a directory below `top` that has their hash as its name; where that is."""
    files = Folder(folder).files
    name = tree_hash({path: (entry.mode, entry.blob) for path, entry in files.items()})
    target = _Target(agent, f"{agent.workdir}/{top}", name, ())
    found = target.look()
    if not found["whole"]:
        target.push(Stream.of(Change(files, ())), None, found)
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
        """Which trees are on the pod, and whether this one is still what its name says; else how much of it came."""
        return self.agent.call(Trees, "trees", self.trees, *self._expected(), timeout=_LOOK_LIMIT_S)

    def push(self, stream: Stream, base: str | None, found: Trees) -> PushStats:
        """Send what differs from `base`, for as long as it comes further over a connection than over the one before;
        the pod verifies the whole before it gets its name.
        """
        name = hashlib.sha256(f"{base} ".encode() + stream.head).hexdigest()[:_NAME_DIGITS]
        at = found["begun"].get(name, 0)
        if at is None:
            name, at = f"{name}-{secrets.token_hex(4)}", 0  # somebody else sends the same, who knows how slowly
        while not found["whole"]:
            self.agent.reached(name, at)
            try:
                self._supply(stream, base, name, at)
                break
            except ContactLost:
                found = self.look()
                came = found["begun"].get(name) or 0
                if came <= at and not found["whole"]:
                    raise
                at = came
        return PushStats(*stream.amount)

    def _supply(self, stream: Stream, base: str | None, name: str, at: int) -> None:
        told = ("--stream", name, "--at", str(at), *(("--base", base) if base else ()))
        send = partial(stream.write, at=at)
        try:
            self.agent.supply(AdoptedTree, send, "bring-tree", self.trees, *self._expected(), *told)
        except PodFull:
            raise
        except PodError as error:
            raise IntegrityError(str(error)) from error

    def _expected(self) -> tuple[str, ...]:
        return ("--tree", self.tree, "--submodules", json.dumps(self.submodules))
