"""A revision's files as a directory on this machine, made from git's objects and kept for the next time.

A kept tree only saves work: what arrives on a pod is verified by the hash that the pod computes from it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InputError, NsaPodError
from orchestrator.repo import Contents, Entry, Repository, Revision
from orchestrator.text import plain

_UNUSED_S = 7 * 86400


@dataclass(frozen=True)
class Checkouts:
    """Trees kept under `folder`, each by its hash: made aside and renamed, unchanged files shared by hard links."""

    folder: Path

    def of(self, repo: Repository, revision: Revision, contents: Contents) -> Path:
        """The directory with exactly the files of `revision`."""
        target = self.folder / revision.tree
        if not target.is_dir():
            try:
                self._make(repo, revision, contents, target)
            except OSError as error:
                raise NsaPodError(f"{self.folder} cannot be written: {error.strerror or error}") from error
        os.utime(target)
        return target

    def forget(self) -> None:
        """Drop every kept tree, because one of them was found to be wrong."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self, repo: Repository, revision: Revision, contents: Contents, target: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._drop_unused()
        base = repo.nearest(revision.tree, self._newest_first())
        aside = self.folder / f".{revision.tree}-{secrets.token_hex(4)}"
        try:
            materialise(contents, aside, repo.own_files(base) if base else {}, self.folder / (base or ""))
            with suppress(OSError):  # somebody else has made the same tree meanwhile
                aside.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _newest_first(self) -> list[str]:
        kept = [path for path in self.folder.iterdir() if not path.name.startswith(".")]
        return [path.name for path in sorted(kept, key=lambda path: path.stat().st_mtime, reverse=True)]

    def _drop_unused(self) -> None:
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # dropped by somebody else
                if time.time() - path.stat().st_mtime > _UNUSED_S:
                    shutil.rmtree(path, ignore_errors=True)


def materialise(contents: Contents, target: Path, base: Mapping[str, Entry], base_folder: Path) -> None:
    """Write the files to the new directory `target`; those that `base` has too are linked from `base_folder`."""
    try:
        _make_folders(target, contents)
        missing = [p for p, e in contents.files.items() if base.get(p) != e or not _linked(base_folder / p, target / p)]
        for store in {contents.files[path].store for path in missing}:
            paths = [path for path in missing if contents.files[path].store == store]
            with store.blobs([contents.files[path].blob for path in paths]) as blobs:
                for path, blob in zip(paths, blobs, strict=True):
                    _write(target / path, contents.files[path], blob.chunks())
    except FileExistsError as error:
        name = plain(os.fsdecode(error.filename))
        raise InputError(f"the commit has two paths that are one on this machine's file system: {name}") from None


def _make_folders(target: Path, contents: Contents) -> None:
    folders = {path.rpartition("/")[0] for path in contents.files} | {s.path for s in contents.submodules}
    every = {"/".join(parts[:n]) for parts in (folder.split("/") for folder in folders) for n in range(len(parts) + 1)}
    for folder in sorted(every | {""}):  # parents sort before what is in them
        (target / folder).mkdir()
        (target / folder).chmod(0o755)


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # no links on this file system, too many of them, or the kept tree was dropped: write it anew
        return False
    return True


def _write(path: Path, entry: Entry, content: Iterable[bytes]) -> None:
    if entry.is_link:
        os.symlink(b"".join(content), os.fsencode(path))
        return
    with path.open("xb") as file:
        file.writelines(content)
        os.fchmod(file.fileno(), 0o755 if entry.is_executable else 0o644)
