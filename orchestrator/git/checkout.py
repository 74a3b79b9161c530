"""A tree's files as a directory on this machine, written from git's objects: all, or what differs from another tree."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InputError, NsaPodError
from orchestrator.git.repository import Entry
from orchestrator.shared.files import folders_of
from orchestrator.text import plain

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


def materialise(files: Files, target: Path) -> None:
    """Write `files` to the new directory `target`, with git's own permissions. InputError for what cannot be."""
    try:
        for folder in sorted(folders_of(files) | {""}):  # parents sort before what is in them
            (target / folder).mkdir()
            (target / folder).chmod(0o755)
        for store in {entry.store for entry in files.values()}:
            paths = [path for path, entry in files.items() if entry.store == store]
            with store.blobs([files[path].blob for path in paths]) as blobs:
                for path, blob in zip(paths, blobs, strict=True):
                    _write(target / path, files[path], blob.chunks())
    except FileExistsError as error:
        name = plain(os.fsdecode(error.filename))
        raise InputError(f"the commit has two paths that are one on this machine's file system: {name}") from None
    except OSError as error:
        raise NsaPodError(f"{target} cannot be written: {error.strerror or error}") from error


def _topmost(path: str, kept: set[str]) -> str:
    """The path itself, or the outermost directory around it that holds nothing any more."""
    parts = path.split("/")
    for n in range(1, len(parts)):
        folder = "/".join(parts[:n])
        if folder not in kept:
            return folder
    return path


def _write(path: Path, entry: Entry, content: Iterable[bytes]) -> None:
    if entry.is_link:
        os.symlink(b"".join(content), os.fsencode(path))
        return
    with path.open("xb") as file:
        file.writelines(content)
        os.fchmod(file.fileno(), 0o755 if entry.is_executable else 0o644)
