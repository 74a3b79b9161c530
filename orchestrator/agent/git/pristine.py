"""The pod's trees, each under its hash: verified, and known again without being read.

Trees share the files that they have in common, by hard links: none of them is ever run in. What each file was when it
was last read is kept beside the tree's files, in its .git, which is no part of the tree.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

from orchestrator.agent.host.moment import tick_after
from orchestrator.shared import tree
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import Identity, identity, walk, write_atomically
from orchestrator.shared.plan import Submodule
from orchestrator.shared.tree import Manifest

_RECORD = ".git/files.json"
Known = Dict[str, Tuple[Tuple[str, str], Identity]]


class Wanted(NamedTuple):
    """A tree by its hash, with its submodules."""

    tree: str
    submodules: Sequence[Submodule]

    def why_not(self, manifest: Manifest) -> Optional[str]:
        """None if the manifest is that of the tree, else a sentence."""
        return tree.wrong_hash(manifest, self.tree, self.submodules)


class Pristine:
    """The tree in the directory `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: Known = {}

    def scan(self) -> Manifest:
        """What is there; content is read only of files that are not as they were when it was last read."""
        known = self._recorded()
        found: Known = {}
        for path, entry in walk(self.root, skip=lambda folder: folder == ".git"):
            now = identity(entry.stat(follow_symlinks=False))
            before = known.get(path)
            found[path] = before if before and before[1] == now else (tree.entry_of(entry.path), now)
        self._known = {}
        if found != known:
            self.record(found)
        self._known = found
        return {path: entry for path, (entry, _) in found.items()}

    def record(self, more: Known) -> None:
        """Keep what files are, but for those that could be written once more at the time that they bear."""
        found = {**self._known, **more}
        path = self.root / _RECORD
        with contextlib.suppress(OSError):  # a disk that is full: they are read again
            path.parent.mkdir(exist_ok=True)
            newest = max((now.changed for _, now in found.values()), default=0)
            tick = tick_after(newest, path.parent)
            settled = {name: (*entry, *now) for name, (entry, now) in found.items() if now.changed < tick}
            write_atomically(path, json.dumps(settled, separators=(",", ":")))

    def forget(self) -> None:
        """Have everything read the next time."""
        with contextlib.suppress(OSError):
            (self.root / _RECORD).unlink()

    def _recorded(self) -> Known:
        try:
            found = json.loads((self.root / _RECORD).read_bytes())
            return {path: ((mode, blob), Identity(*now)) for path, (mode, blob, *now) in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):  # there is none, or it is damaged
            return {}


def adopt(incoming: Path, target: Path, wanted: Wanted) -> None:
    """Give the directory its name as a tree; Failure if it is not that tree, which is then left."""
    wrong = wanted.why_not(Pristine(incoming).scan())
    if wrong:
        raise Failure(f"{incoming} did not arrive whole: {wrong}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and wanted.why_not(Pristine(target).scan()):
        discard(target)
    try:
        incoming.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        discard(incoming)  # someone else was faster, with the same tree


def discard(folder: Path) -> None:
    """Take the directory away in one step, then delete it."""
    aside = folder.with_name(f".{folder.name}.gone-{os.getpid()}")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
