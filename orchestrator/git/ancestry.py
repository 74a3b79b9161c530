"""What of a commit's past travels with it: as much as `git describe` needs to find its tag and count the commits."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Mapping, Sequence

from orchestrator.git.repository import Repository
from orchestrator.shared.plan import Ancestry

NONE = Ancestry(objects="", tags={})
# Beyond this a plan would be too large: a tag that is farther away does not travel, and nothing counts from it.
_MOST_COMMITS = 1000
_MOST_BYTES = 1 << 19
# Commits before a tag: git walks by date, and where several have one, what lies behind them decides what it counts.
_BEFORE_A_TAG = 32
# Which tag is the nearest depends on who asks: plain `describe` (annotated ones), --tags, and the tools that make
# versions of tags (setuptools_scm, versioneer, hatch-vcs).
_ASKED = ((), ("--tags",), ("--tags", "--match", "*[0-9]*"), ("--tags", "--match", "v*"))
_TAG_FORMAT = "--format=%(objecttype) %(objectname) %(*objecttype) %(*objectname) %(refname)"

# A commit -> its parents.
_Commits = Mapping[str, Sequence[str]]


def ancestry_of(repo: Repository, commit: str) -> Ancestry:
    """The commits between `commit` and its nearest tags, with those tags; nothing where there is none near enough."""
    tags = _tags(repo)
    found: dict[str, Sequence[str]] = {commit: ()}
    for name in _nearest(repo, commit) if tags else ():
        found.update(_commits_to(repo, f"refs/tags/{name}", commit))
    commits = {*found, *_beside(found)}
    here = {name: tag for name, (tag, target) in tags.items() if target in commits}
    objects = _packed(repo, [*sorted(commits - {commit}), *sorted(set(here.values()) - commits)])
    return Ancestry(objects=objects, tags=here) if here and len(objects) <= _MOST_BYTES else NONE


def _tags(repo: Repository) -> dict[str, tuple[str, str]]:
    """By name, the tag's object (the commit itself, of a light one), and the commit."""
    found = {}
    for line in os.fsdecode(repo.said("for-each-ref", _TAG_FORMAT, "refs/tags") or b"").split("\n"):
        kind, _, rest = line.partition(" ")
        tag, target_kind, target, ref = rest.split(" ", 3) if rest else ("", "", "", "")
        if kind == "commit" or target_kind == "commit":
            found[ref.removeprefix("refs/tags/")] = (tag, target or tag)
    return found


def _nearest(repo: Repository, commit: str) -> list[str]:
    answers = (repo.said("describe", "--abbrev=0", *options, commit) for options in _ASKED)
    return list(dict.fromkeys(os.fsdecode(answer).rstrip("\n") for answer in answers if answer))


def _commits_to(repo: Repository, tag: str, commit: str) -> _Commits:
    """Those that are not the tag's, the tag's own, and those that show which of their parents are the tag's.

    Without these, a branch that began before the tag and was merged after it would be counted too far.
    """
    lines = (repo.said("rev-list", "--boundary", commit, f"^{tag}") or b"").decode().split()
    ends = [line[1:] for line in lines if line.startswith("-")] or [f"{tag}^0"]
    if len(lines) > _MOST_COMMITS:
        return {}
    found = _with_parents(repo, [commit, *(f"^{end}^@" for end in ends)])
    if len(found) > _MOST_COMMITS:
        return {}
    return {**found, **(_with_parents(repo, ends, f"--max-count={_BEFORE_A_TAG}") if lines else {})}


def _with_parents(repo: Repository, revisions: Sequence[str], *options: str) -> _Commits:
    wanted = "".join(f"{revision}\n" for revision in revisions).encode()
    listed = (repo.said("rev-list", "--parents", *options, "--stdin", stdin=wanted) or b"").decode().splitlines()
    return {name: parents for name, *parents in map(str.split, listed)}


def _beside(commits: _Commits) -> set[str]:
    """Parents that are not among the commits, of those that have others there: git knows all of a commit's or none."""
    mixed = (parents for parents in commits.values() if not set(parents).isdisjoint(commits))
    return {parent for parents in mixed for parent in parents} - set(commits)


def _packed(repo: Repository, names: Sequence[str]) -> str:
    """The objects one after the other, each with git's own header."""
    content = b"".join(b"%s %d\0" % (kind.encode(), len(data)) + data for kind, data in repo.objects(names))
    return base64.b64encode(zlib.compress(content, 9)).decode() if content else ""
