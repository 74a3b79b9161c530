"""A cheap fingerprint of an environment's files, to notice that something was installed, edited or removed.

Its first half is of names, sizes, link targets and both times, its second half leaves the change times out. Those also
change where a file gets or loses a hard link (a copy by `cp -al`, the installer's cache cleaned): where only they
differ, contents decide (`is_same`).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Tuple

from orchestrator.agent.env.installed import is_as_recorded
from orchestrator.shared.files import walk

_HALF = 32
_WRITTEN_BY_USE = "dropin.cache"
"""What Twisted writes beside its plugins when it first looks for them: their names."""
_CODE = (".py", ".so", ".pyd", ".abi3.so")


def fingerprint(root: Path) -> str:
    """Fingerprint of a managed environment: all files of its site-packages and bin, and its pyvenv.cfg.

    `root` is the environment's directory. Contents do not go into it: the change time cannot be set back by an edit
    that restores the modification time. Two halves of a sha256 in hex.
    """
    root = Path(root)
    return "".join(_digest((top, root) for top in (root / "bin", root / "pyvenv.cfg", *_packages(root))))


def system_fingerprint(directories: Iterable[str], editables: Iterable[str] = ()) -> str:
    """Fingerprint of an interpreter that others use too, from its site directories, and from the code below
    `editables`, where its editable installations lead.

    Bytecode caches are left out: any process of the pod may write them, and Python checks them against their sources.
    """
    tops = [Path(d) for d in sorted(set(directories))]
    installed = _digest(((top, top.parent) for top in tops), skip=_is_bytecode)
    targets = [(Path(target), Path(target).parent) for target in editables]
    if targets:  # of these nobody has recorded what they hold
        code = _digest(targets, skip=_holds_no_code, only=lambda name: name.endswith(_CODE))[0]
        installed = tuple(hashlib.sha256(f"{half} {code}".encode()).hexdigest()[:_HALF] for half in installed)
    return "".join(installed)


def folders(root: Path) -> Iterator[str]:
    """The folders that hold what `fingerprint` is of."""
    return itertools.chain([str(root)], *(_below(top) for top in (root / "bin", *_packages(root))))


def system_folders(directories: Iterable[str], editables: Iterable[str]) -> Iterator[str]:
    """The folders that hold what `system_fingerprint` is of."""
    installed = (_below(Path(top), _is_bytecode) for top in directories)
    return itertools.chain(*installed, *(_below(Path(target), _holds_no_code) for target in editables))


def is_same(recorded: str, found: str, sites: Iterable[Path]) -> bool:
    """Whether `found` is of the same files as `recorded`. Where no more than change times differ, all that is installed
    in `sites` must be what the packages' RECORDs say.
    """
    if recorded[:_HALF] == found[:_HALF]:  # agents before wrote a whole hash, of which this is the beginning
        return True
    return recorded[_HALF:] == found[_HALF:] and all(map(is_as_recorded, sites))


def _packages(root: Path) -> List[Path]:
    libraries = [lib for lib in sorted(root.glob("lib*")) if not lib.is_symlink()]  # lib64 is often a link to lib
    return [found for lib in libraries for found in sorted(lib.glob("python*/site-packages"))]


def _below(top: Path, skip: Callable[[str], bool] = lambda folder: False) -> Iterator[str]:
    """The folder `top` and those in it, at any depth; links are not followed."""
    for folder, inner, _ in os.walk(top):
        yield folder
        inner[:] = [name for name in inner if not skip(os.path.join(folder, name))]


def _is_bytecode(folder: str) -> bool:
    return folder.endswith("__pycache__")


def _holds_no_code(folder: str) -> bool:
    """A project's own folder is much more than what is imported from it."""
    name = os.path.basename(folder)
    return name.startswith(".") or name in ("__pycache__", "node_modules", "site-packages", "artifacts")


def _digest(
    tops: Iterable[tuple[Path, Path]],
    skip: Callable[[str], bool] = lambda folder: False,
    only: Callable[[str], bool] = lambda name: True,
) -> Tuple[str, ...]:
    """With and without change times: of all files below each top (or the top itself, if it is a file), named from its
    base."""
    digests = hashlib.sha256(), hashlib.sha256()
    for top, base in tops:
        name = os.path.relpath(top, base)
        found = (
            (f"{name}/{inner}", e.path, e.stat(follow_symlinks=False))
            for inner, e in walk(top, skip)
            if only(inner) and e.name != _WRITTEN_BY_USE
        )
        lines = sorted(_line(*file) for file in found)
        if top.is_file():
            lines = [_line(name, str(top), os.lstat(top))]
        for n, digest in enumerate(digests):
            digest.update("\n".join(line[n] for line in lines).encode("utf-8", "surrogateescape"))
    return tuple(digest.hexdigest()[:_HALF] for digest in digests)


def _line(name: str, path: str, status: os.stat_result) -> Tuple[str, str]:
    """With and without the change time."""
    target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
    # Environments share files with the installer's cache by hard links: each link made or removed changes that time.
    changed = status.st_ctime_ns if status.st_nlink == 1 else 0
    line = f"{name}\0{status.st_mode}\0{status.st_size}\0{status.st_mtime_ns}\0"
    return f"{line}{changed}\0{target}", f"{line}{target}"
