"""Which Git LFS pointers of the commit a stage has read: it took them for the files that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List, Optional

from orchestrator.agent.host.file_watch import READ, FileWatch
from orchestrator.shared import lfs
from orchestrator.shared.files import folders_of
from orchestrator.shared.text import listing
from orchestrator.shared.tree import Manifest

_FILES = ("100644", "100755")


class Pointers:
    """Of the files of `manifest`, which lie below `pristine`; the kernel tells which are read below `tree`, by whatever
    program.
    """

    def __init__(self, tree: Path, pristine: Path, manifest: Manifest) -> None:
        self._tree = tree
        self._paths = frozenset(_pointers(pristine, manifest))
        self._watch: Optional[FileWatch] = None

    def begin(self) -> None:
        """A stage is about to start; the one before may have replaced folders."""
        if self._watch:
            self._watch.close()
        self._watch = FileWatch(self._tree, ["", *folders_of(self._paths)], READ) if self._paths else None

    def read(self) -> List[str]:
        """What the stage has read of them, in a sentence, if anything."""
        events = self._watch.take() if self._watch else None
        found = sorted(self._paths & (events or set()))
        if not found:
            return []
        if len(found) == 1:
            return [
                f"it read {listing(found)}, a Git LFS pointer: the commit does not hold the file that it stands for"
            ]
        return [f"it read {listing(found)}, Git LFS pointers: the commit does not hold the files that they stand for"]


def _pointers(pristine: Path, manifest: Manifest) -> Iterator[str]:
    """A commit has some where attributes say that files are LFS's; only then are all of them looked into."""
    files = [path for path, (mode, _) in manifest.items() if mode in _FILES]
    attributes = (path for path in files if path.rpartition("/")[2] == ".gitattributes")
    if any(b"filter=lfs" in (pristine / path).read_bytes() for path in attributes):
        yield from (path for path in files if lfs.lies_at(pristine / path))
