"""A cheap fingerprint of an environment's files, to notice that something was installed, edited or removed."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Callable, Iterable

from orchestrator.shared.files import walk

_CODE = (".py", ".so", ".pyd", ".abi3.so")


def fingerprint(root: Path) -> str:
    """Fingerprint of a managed environment: all files of its site-packages and bin, and its pyvenv.cfg.

    `root` is the environment's directory. Names, sizes, link targets and both times go into it, not contents: the
    change time cannot be set back by an edit that restores the modification time. Sha256 in hex.
    """
    root = Path(root)
    libraries = [lib for lib in sorted(root.glob("lib*")) if not lib.is_symlink()]  # lib64 is often a link to lib
    packages = [found for lib in libraries for found in sorted(lib.glob("python*/site-packages"))]
    return _digest((top, root) for top in (root / "bin", root / "pyvenv.cfg", *packages))


def system_fingerprint(directories: Iterable[str], editables: Iterable[str] = ()) -> str:
    """Fingerprint of an interpreter that others use too, from its site directories, and from the code below
    `editables`, where its editable installations lead.

    Bytecode caches are left out: any process of the pod may write them, and Python checks them against their sources.
    """
    tops = [Path(d) for d in sorted(set(directories))]
    installed = _digest(((top, top.parent) for top in tops), skip=lambda folder: folder.endswith("__pycache__"))
    targets = [(Path(target), Path(target).parent) for target in editables]
    return _digest_of_code(installed, targets) if targets else installed


def _digest_of_code(before: str, targets: Iterable[tuple[Path, Path]]) -> str:
    digest = _digest(targets, skip=_holds_no_code, only=lambda name: name.endswith(_CODE))
    return hashlib.sha256(f"{before} {digest}".encode()).hexdigest()


def _holds_no_code(folder: str) -> bool:
    """A project's own folder is much more than what is imported from it."""
    name = os.path.basename(folder)
    return name.startswith(".") or name in ("__pycache__", "node_modules", "site-packages", "artifacts")


def _digest(
    tops: Iterable[tuple[Path, Path]],
    skip: Callable[[str], bool] = lambda folder: False,
    only: Callable[[str], bool] = lambda name: True,
) -> str:
    """Digest of all files below each top (or the top itself, if it is a file), named from its base."""
    digest = hashlib.sha256()
    for top, base in tops:
        name = os.path.relpath(top, base)
        found = (
            (f"{name}/{inner}", e.path, e.stat(follow_symlinks=False)) for inner, e in walk(top, skip) if only(inner)
        )
        lines = sorted(_line(*file) for file in found)
        if top.is_file():
            lines = [_line(name, str(top), os.lstat(top))]
        digest.update("\n".join(lines).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _line(name: str, path: str, status: os.stat_result) -> str:
    target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
    # Environments share files with the installer's cache by hard links: each link made or removed changes that time.
    changed = status.st_ctime_ns if status.st_nlink == 1 else 0
    return f"{name}\0{status.st_mode}\0{status.st_size}\0{status.st_mtime_ns}\0{changed}\0{target}"
