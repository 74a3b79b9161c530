"""What makes one tree of another, and its content on the way to a pod: from git's objects, with no copy of it here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from orchestrator.git.repository import Entry, Repository
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


def amount(files: Files) -> tuple[int, int]:
    """How many regular files these are, and their bytes. Raises InputError for content that is not there."""
    found = [
        (files[path].is_link, size)
        for paths in _by_store(files)
        for path, size in zip(paths, _sizes(files, paths), strict=True)
    ]
    sizes = [size for is_link, size in found if not is_link]
    return len(sizes), sum(sizes)


def write(change: Change, out: IO[bytes]) -> None:
    """Write the change as the agent's `bring-tree` reads it; the content goes from git to `out` without a stop."""
    order = [path for paths in _by_store(change.files) for path in paths]
    told = {path: [change.files[path].mode, change.files[path].blob] for path in order}
    out.write(json.dumps({"files": told, "removed": change.removed}).encode() + b"\n")
    out.flush()
    for paths in _by_store(change.files):
        change.files[paths[0]].store.write_blobs([change.files[path].blob for path in paths], out)


def _by_store(files: Files) -> list[list[str]]:
    """The paths, those of one repository together."""
    found: dict[Repository, list[str]] = {}
    for path, entry in files.items():
        found.setdefault(entry.store, []).append(path)
    return list(found.values())


def _sizes(files: Files, paths: list[str]) -> list[int]:
    return files[paths[0]].store.sizes([files[path].blob for path in paths])


def _topmost(path: str, kept: set[str]) -> str:
    """The path itself, or the outermost directory around it that holds nothing any more."""
    parts = path.split("/")
    for n in range(1, len(parts)):
        folder = "/".join(parts[:n])
        if folder not in kept:
            return folder
    return path
