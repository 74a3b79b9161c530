"""A commit's tree on disk: its git hash recomputed from the files, a run's own copy of it, and what was done to it."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from orchestrator.shared.files import walk
from orchestrator.shared.plan import Submodule

# Path -> (git mode, sha1 of the blob). Whatever git cannot hold has the mode "other" and no hash.
Manifest = Dict[str, Tuple[str, str]]

# Path -> modification and change time, in nanoseconds.
WriteTimes = Mapping[str, Tuple[int, int]]

_UNKNOWN = ("other", "")
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file, copy on write
_SHA1_OPTIONS: dict[str, Any] = {"usedforsecurity": False} if sys.version_info >= (3, 9) else {}


@dataclass(frozen=True)
class Difference:
    """`changed` names files of the commit that are missing or different; `strays` what is not the commit's."""

    changed: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


def scan(root: Path) -> Manifest:
    """What is below `root`, by content; the top level's .git is left out, and so are empty directories, as in git."""
    return {name: entry_of(path) for name, path in _walk(root)}


def tree_hash(manifest: Manifest, submodules: Sequence[Submodule] = ()) -> str:
    """The git hash of the tree with these files, submodules as links to their commits."""
    top: dict[str, Any] = {}
    links = {s["path"]: ("160000", s["commit"]) for s in submodules}
    inside = tuple(path + "/" for path in links)
    own = {path: entry for path, entry in manifest.items() if not path.startswith(inside)}
    outermost = {path: entry for path, entry in links.items() if not path.startswith(inside)}
    for path, entry in {**own, **outermost}.items():
        *folders, name = path.split("/")
        folder = top
        for part in folders:
            folder = folder.setdefault(part, {})
        folder[name] = entry
    return _hash_folder(top)


def wrong_hash(manifest: Manifest, tree: str, submodules: Sequence[Submodule] = ()) -> str | None:
    """None if the files are those of `tree`, submodules included; else a sentence that says which part is not."""
    found = tree_hash(manifest, submodules)
    if found != tree:
        return f"the files have the tree hash {found}, expected {tree}"
    for submodule in submodules:
        prefix = submodule["path"] + "/"
        below = {path[len(prefix) :]: entry for path, entry in manifest.items() if path.startswith(prefix)}
        nested: List[Submodule] = [
            {**inner, "path": inner["path"][len(prefix) :]} for inner in submodules if inner["path"].startswith(prefix)
        ]
        found = tree_hash(below, nested)
        if found != submodule["tree"]:
            where = f"submodule {submodule['path']}"
            return f"{where}: the files have the tree hash {found}, expected {submodule['tree']}"
    return None


def entry_of(path: str | Path) -> tuple[str, str]:
    """Git mode and blob hash of what is at `path`."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return "120000", _hash_object("blob", os.fsencode(os.readlink(path)))
        if stat.S_ISREG(mode):
            return ("100755" if mode & 0o100 else "100644"), _hash_file(path)
    except OSError:
        return _UNKNOWN  # unreadable, or gone since it was listed
    return _UNKNOWN


def is_empty(entry: tuple[str, str]) -> bool:
    """Whether a manifest's entry is that of a file without content."""
    return entry[1] == _hash_object("blob", b"")


def write_times(root: Path, files: Iterable[str]) -> WriteTimes:
    """When each of `files` was last written: the change time cannot be set back, as the content can."""
    return {name: _write_time(root / name) for name in files}


def difference(root: Path, expected: Manifest, allowed: Manifest, commit: str, written: WriteTimes) -> Difference:
    """What was done to the tree at `root` since it was `expected`; `allowed` files may be there as they are.

    A file that was written since `written` has changed, even if its content was set back.
    """
    found = {name: entry_of(p) if name in expected or name in allowed else _UNKNOWN for name, p in _walk(root)}
    now = write_times(root, expected)
    changed = sorted(path for path, entry in expected.items() if found.get(path) != entry or now[path] != written[path])
    strays = sorted(path for path, entry in found.items() if path not in expected and allowed.get(path) != entry)
    if _git_head(root) != commit:
        changed.append(".git/HEAD")
    return Difference(changed, strays)


def copy(source: Path, target: Path) -> None:
    """Copy the files and links below `source` to the new directory `target`, by reflink where the disk can."""
    target.mkdir()
    for name, path in _walk(source):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), place)
        else:
            _copy_file(path, str(place))


def make_git(root: Path, commit: str, commit_object: str, tree: str) -> None:
    """A minimal .git with HEAD detached at `commit`, enough for `git rev-parse HEAD`.

    With `commit_object` (the object's content in base64), unless that is empty, `git log -1` works too; ValueError if
    its hash is not `commit`, or if it is the commit of another tree than `tree`.
    """
    git = root / ".git"
    for folder in ("objects", "refs/heads"):
        (git / folder).mkdir(parents=True)
    (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    (git / "HEAD").write_text(commit + "\n")
    if commit_object:
        content = base64.b64decode(commit_object, validate=True)
        if _hash_object("commit", content) != commit:
            raise ValueError(f"the commit object in the plan is not that of {commit}")
        if not content.startswith(f"tree {tree}\n".encode()):
            raise ValueError(f"the plan's tree {tree} is not that of its commit {commit}")
        place = git / "objects" / commit[:2] / commit[2:]
        place.parent.mkdir()
        place.write_bytes(zlib.compress(b"commit %d\0" % len(content) + content))
        (git / "shallow").write_text(commit + "\n")  # its parents are not here


def _walk(root: Path) -> Iterator[tuple[str, str]]:
    """(relative path, path) of everything below `root` that is no directory, but for .git."""
    return ((name, entry.path) for name, entry in walk(root, skip=lambda folder: folder == ".git"))


def _hash_folder(folder: Mapping[str, Any]) -> str:
    content = b""
    for name, entry in sorted(folder.items(), key=lambda item: _sort_key(*item)):
        mode, digest = ("40000", _hash_folder(entry)) if isinstance(entry, dict) else entry
        content += b"%s %s\0" % (mode.encode(), os.fsencode(name)) + bytes.fromhex(digest)
    return _hash_object("tree", content)


def _sort_key(name: str, entry: object) -> bytes:
    """Git sorts a tree's entries as if directories' names ended with a slash."""
    return os.fsencode(name) + (b"/" if isinstance(entry, dict) else b"")


def _hash_object(kind: str, content: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content, **_SHA1_OPTIONS).hexdigest()


def _hash_file(path: str | Path) -> str:
    with open(path, "rb") as f:
        digest = hashlib.sha1(b"blob %d\0" % os.fstat(f.fileno()).st_size, **_SHA1_OPTIONS)
        for piece in iter(lambda: f.read(1 << 16), b""):
            digest.update(piece)
    return digest.hexdigest()


def _write_time(path: Path) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_ctime_ns


def _git_head(root: Path) -> str:
    try:
        return (root / ".git" / "HEAD").read_text(errors="replace").strip()
    except OSError:
        return ""


def _copy_file(source: str, target: str) -> None:
    with open(source, "rb") as src, open(target, "xb") as dst:
        try:
            fcntl.ioctl(dst.fileno(), _FICLONE, src.fileno())
        except OSError:  # a file system without reflinks
            shutil.copyfileobj(src, dst, 1 << 20)
    if os.stat(source).st_mode & 0o100:
        os.chmod(target, 0o755)
