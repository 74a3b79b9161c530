"""A commit's files as a directory, made on this machine as a pod makes them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from orchestrator.agent.git.incoming import Incoming
from orchestrator.agent.git.pristine import Wanted
from orchestrator.git.checkout import Change, Files, Stream
from orchestrator.shared.tree import tree_hash


def bring_tree(change: Change, trees: Path, wanted: Wanted, base: str | None = None) -> Path:
    """What a sync with a pod that keeps its trees in `trees` does, but for the way there."""
    with tempfile.TemporaryFile() as stream:
        Stream.of(change).write(stream)
        stream.seek(0)
        Incoming(trees, wanted, base, "stream").go_on(lambda at: None, stream)
    return trees / wanted.tree


def materialise(files: Files, target: Path) -> None:
    """The files as the new directory `target`, and nothing else in it."""
    hashed = tree_hash({path: (entry.mode, entry.blob) for path, entry in files.items()})
    made = bring_tree(Change(files, ()), target.parent / f".{target.name}", Wanted(hashed, ()))
    shutil.rmtree(made / ".git")
    made.rename(target)
    made.parent.rmdir()
