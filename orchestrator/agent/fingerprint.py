"""A cheap fingerprint of an environment's installed files, to notice that something was installed, edited or removed."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Iterable, Iterator


def fingerprint(root: Path) -> str:
    """Fingerprint of a managed environment: all files of its site-packages and bin, and its pyvenv.cfg.

    `root` is the environment's directory. Names, sizes, link targets and both times go into it, not contents: the
    change time cannot be set back by an edit that restores the modification time. Sha256 in hex.
    """
    root = Path(root)
    libraries = [lib for lib in sorted(root.glob("lib*")) if not lib.is_symlink()]  # lib64 is often a link to lib
    packages = [found for lib in libraries for found in sorted(lib.glob("python*/site-packages"))]
    return _digest((top, root) for top in (root / "bin", root / "pyvenv.cfg", *packages))


def system_fingerprint(directories: Iterable[str]) -> str:
    """Fingerprint of an interpreter that others use too, from its site directories.

    Bytecode caches are left out: any process of the pod may write them, and Python checks them against their sources.
    """
    tops = [Path(d) for d in sorted(set(directories))]
    return _digest(((top, top.parent) for top in tops), skip=frozenset(["__pycache__"]))


def _digest(tops: Iterable[tuple[Path, Path]], skip: frozenset[str] = frozenset()) -> str:
    digest = hashlib.sha256()
    for top, base in tops:
        lines = sorted(_lines(str(top), len(str(base)) + 1, skip))
        digest.update("\n".join(lines).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _lines(top: str, cut: int, skip: frozenset[str]) -> Iterator[str]:
    """One line for each file below `top` (or for `top` itself, if it is a file); names begin after `cut` characters."""
    if not os.path.isdir(top):
        if os.path.lexists(top):
            yield _line(top[cut:], top, os.lstat(top))
        return
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in skip:
                    yield from _lines(entry.path, cut, skip)
            else:
                yield _line(entry.path[cut:], entry.path, entry.stat(follow_symlinks=False))


def _line(name: str, path: str, status: os.stat_result) -> str:
    target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
    return f"{name}\0{status.st_mode}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}\0{target}"
