"""What a stage names and the commit does not hold."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.config.commands import pytest_arguments
from orchestrator.config.runbook import Runbook, Stage, named_paths, named_programs
from orchestrator.shared.globs import matcher
from orchestrator.shared.plan import Ancestry, CommitParts, Submodule
from orchestrator.shared.text import with_commit

_TREE = "{tree}"
_FROM_TREE = "tree:"


@dataclass(frozen=True)
class Tree:
    """What the plan needs to know of the commit: `files` are the paths of its tree, submodules' files included."""

    commit: str
    commit_object: bytes
    tree: str
    submodules: Sequence[Submodule]
    dirty: bool
    files: frozenset[str]
    ancestry: Ancestry = field(default_factory=lambda: Ancestry(objects="", tags={}))

    @property
    def parts(self) -> CommitParts:
        """As a pod is told of it."""
        return CommitParts(
            commit=self.commit,
            commit_object=base64.b64encode(self.commit_object).decode(),
            ancestry=self.ancestry,
            tree=self.tree,
            submodules=list(self.submodules),
        )

    def has(self, path: str) -> bool:
        """Whether `path` is a file or a directory of the tree."""
        clean = path.removeprefix("./").rstrip("/")
        return clean in ("", ".") or clean in self.files or any(f.startswith(clean + "/") for f in self.files)

    def has_module(self, name: str) -> bool:
        """Whether `name`, which is dotted, may be one of the tree's modules, wherever its packages are."""
        path = "/" + name.replace(".", "/")
        return "." in name and any(f"/{file}".endswith(f"{path}.py") or f"{path}/" in f"/{file}" for file in self.files)


def named_in_tree(stage: Stage, tree: Tree) -> list[str]:
    """The folder where the stage begins and the files that it names, relative to the tree; others as they are named."""
    folder = [stage.cwd] if stage.cwd != "." else []
    return [
        *folder,
        *(in_tree(path, stage, tree.commit) for path in named_paths(stage) if not _is_module(path, stage, tree)),
    ]


def _is_module(path: str, stage: Stage, tree: Tree) -> bool:
    """Whether pytest may be told to take it for a module's name: `--pyargs` may also stand in an ini file."""
    is_told_to_run = path not in stage.paths and pytest_arguments(stage.run or [""]) is not None
    return is_told_to_run and not tree.has(in_tree(path, stage, tree.commit)) and tree.has_module(path)


def in_tree(path: str, stage: Stage, commit: str) -> str:
    """A path that the stage names, relative to the tree if it leads there."""
    path = with_commit(path, commit)
    if path == _TREE or path.startswith(f"{_TREE}/"):
        return posixpath.normpath(path[len(_TREE) :].lstrip("/") or ".")
    if stage.cwd == "." or path.startswith(("{", "/")):
        return path
    return posixpath.normpath(posixpath.join(stage.cwd, path))


def absences(stage: Stage, runbook: Runbook, tree: Tree) -> Iterator[str]:
    """Each path that the stage names and that is neither in the commit nor made by an earlier stage, as a sentence."""
    return (f"{path} is not in the commit" for path in absent_paths(stage, runbook, tree))


def absent_paths(stage: Stage, runbook: Runbook, tree: Tree) -> Iterator[str]:
    """Those paths, relative to the tree."""
    programs = {in_tree(path, stage, tree.commit) for path in named_programs(stage)}
    is_made = matcher(_made_before(stage, runbook, tree.commit))
    for path in named_in_tree(stage, tree):
        elsewhere = path.startswith("{") or (path.startswith("/") and path not in programs)
        if not elsewhere and not tree.has(path) and not is_made(posixpath.normpath(path)):
            yield path


def _made_before(stage: Stage, runbook: Runbook, commit: str) -> Sequence[str]:
    """Patterns of what earlier stages leave in the tree for this one."""
    names = [each.name for each in runbook.stages]
    earlier = runbook.stages[: names.index(stage.name)]
    owed = [artifact.get("from") or "" for each in earlier for artifact in each.expect.get("artifacts", ())]
    files = [with_commit(source[len(_FROM_TREE) :], commit) for source in owed if source.startswith(_FROM_TREE)]
    return [*files, *(pattern for each in earlier for pattern in each.builds)]
