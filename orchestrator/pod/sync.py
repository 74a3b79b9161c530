"""Bring a commit's exact tree to the pod, verified there by git's own hash."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from orchestrator.errors import InputError, IntegrityError, PodError, PodFull
from orchestrator.git.checkout import Change, amount, change, write
from orchestrator.git.repository import Contents, Repository, Revision
from orchestrator.pod.client import Agent
from orchestrator.shared.answers import AdoptedTree, Trees
from orchestrator.transports.base import PushStats

_MOST_BASES = 20


def sync(agent: Agent, repo: Repository, revision: Revision, contents: Contents) -> PushStats | None:
    """Make trees/<tree hash> on the pod; what was moved, or None if it was there already.

    Only what differs from the nearest tree on the pod is sent. A tree that somebody has changed there is replaced: runs
    go on in copies of their own, and none starts from it. IntegrityError if what arrived is not the tree.
    """
    target = _Target(agent, f"{agent.workdir}/trees", revision.tree, contents)
    found = target.look()
    if found["whole"]:
        return None
    there = [tree for tree in found["trees"] if tree != revision.tree]
    base = repo.nearest(revision.tree, there[:_MOST_BASES])
    difference = _difference(repo, base, contents) if base else None
    if base and difference:
        with suppress(PodError):  # the tree that it began with is not what its name says, or has just been dropped
            return target.push(difference, base)
    return target.push(Change(contents.files, ()), None)


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
    contents: Contents

    def look(self) -> Trees:
        """Which trees are on the pod, and whether this one is still what its name says."""
        return self.agent.call(Trees, "trees", self.trees, *self._expected())

    def push(self, difference: Change, base: str | None) -> PushStats:
        """Send what differs from `base`; the pod verifies the whole before it gets its name."""
        moved = PushStats(*amount(difference.files))
        told = ("--base", base) if base else ()
        try:
            self.agent.supply(
                AdoptedTree, partial(write, difference), "bring-tree", self.trees, *self._expected(), *told
            )
        except PodFull:
            raise
        except PodError as error:
            raise IntegrityError(str(error)) from error
        return moved

    def _expected(self) -> tuple[str, ...]:
        return ("--tree", self.tree, "--submodules", json.dumps(self.contents.submodules))
