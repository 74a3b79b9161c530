"""What makes one tree of another, and its content on the way to a pod: from git's objects, with no copy of it here."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from orchestrator.files import Writer
from orchestrator.git.repository import Blobs, Entry
from orchestrator.shared.files import folders_of

Files = Mapping[str, Entry]


@dataclass(frozen=True)
class Change:
    """What makes one tree of another: `removed` (files, links, directories) go, then `files` are laid over it."""

    files: Files
    removed: tuple[str, ...]


def change(base: Files, wanted: Files) -> Change:
    """The change from the files of `base` to those of `wanted`."""
    files = {path: entry for path, entry in wanted.items() if base.get(path) != entry}
    # A link is never written over: whatever wrote would follow it.
    replaced = {p for p in files if p in base and (base[p].is_link or files[p].is_link)}
    kept = folders_of(wanted)
    gone = {_topmost(path, kept) for path in base if path not in wanted}
    return Change(files, tuple(sorted(replaced | gone)))


@dataclass(frozen=True)
class Stream:
    """A change as the agent's `bring-tree` reads it: a line that says what to do, then the contents as git writes them.

    The same change is the same bytes, however often it is made: one that was cut goes on where it had come to.
    """

    change: Change
    order: tuple[str, ...]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, change: Change) -> Stream:
        """InputError for content that is not there."""
        order = [path for paths in _by_store(change.files).values() for path in paths]
        sizes = {
            path: size
            for store, paths in _by_store(change.files).items()
            for path, size in zip(paths, store.sizes(_blobs(change, paths)), strict=True)
        }
        return cls(change, tuple(order), sizes)

    @cached_property
    def head(self) -> bytes:
        """The line."""
        files = self.change.files
        told = {path: [files[path].mode, files[path].blob, str(self.sizes[path])] for path in self.order}
        return json.dumps({"files": told, "removed": self.change.removed}).encode() + b"\n"

    @property
    def amount(self) -> tuple[int, int]:
        """How many regular files these are, and their bytes."""
        sizes = [self.sizes[path] for path in self.order if not self.change.files[path].is_link]
        return len(sizes), sum(sizes)

    def write(self, out: Writer, at: int = 0) -> None:
        """Write it from its byte `at` on."""
        out.write(self.head[at:])
        at = max(0, at - len(self.head))
        for store, paths in _by_store(self.change.files).items():
            left = deque(paths)
            while left and at >= self._length(left[0]):
                at -= self._length(left.popleft())
            store.write_blobs(_blobs(self.change, left), out, skip=at)
            at = 0 if left else at

    def _length(self, path: str) -> int:
        """What a content takes of the stream."""
        size = self.sizes[path]
        return len(f"{self.change.files[path].blob} blob {size}\n") + size + 1


def _by_store(files: Files) -> dict[Blobs, list[str]]:
    """The paths, those of one repository together."""
    found: dict[Blobs, list[str]] = {}
    for path, entry in files.items():
        found.setdefault(entry.store, []).append(path)
    return found


def _blobs(change: Change, paths: Iterable[str]) -> list[str]:
    return [change.files[path].blob for path in paths]


def _topmost(path: str, kept: set[str]) -> str:
    """The path itself, or the outermost directory around it that holds nothing any more."""
    parts = path.split("/")
    for n in range(1, len(parts)):
        folder = "/".join(parts[:n])
        if folder not in kept:
            return folder
    return path
