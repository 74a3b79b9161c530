"""A commit's tree on disk: its git hash recomputed from the files, and a run's own copy of it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from orchestrator.shared.files import walk
from orchestrator.shared.plan import Submodule

if TYPE_CHECKING:
    from hashlib import _Hash

# Path -> (git mode, sha1 of the blob). Whatever git cannot hold has the mode "other" and no hash.
Manifest = Dict[str, Tuple[str, str]]

EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Git's hash of a tree that holds nothing."""

LINK = "120000"
"""Git's mode of a symbolic link."""
_UNKNOWN = ("other", "")
_PIECE = 1 << 16  # of this size, memory is reused: many small files cost no more than they must
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file, copy on write
SHA1_OPTIONS: dict[str, Any] = {"usedforsecurity": False} if sys.version_info >= (3, 9) else {}


def scan(root: Path) -> Manifest:
    """What is below `root`, by content; the top level's .git is left out, and so are empty directories, as in git."""
    return {name: entry_of(path) for name, path in _walk(root)}


def tree_hash(manifest: Manifest, submodules: Sequence[Submodule] = ()) -> str:
    """The git hash of the tree with these files, submodules as links to their commits."""
    *_, top = tree_objects(entries(manifest, submodules))
    return object_name("tree", top)


def without_files(submodules: Sequence[Submodule]) -> List[str]:
    """The paths of those of which there is nothing."""
    return [s["path"] for s in submodules if s["tree"] == EMPTY]


def entries(manifest: Manifest, submodules: Sequence[Submodule] = ()) -> Manifest:
    """What git's own list of the tree has: its files, and submodules as links to their commits."""
    links = {s["path"]: ("160000", s["commit"]) for s in submodules}
    inside = tuple(path + "/" for path in links)
    found = {**manifest, **links}
    return {path: entry for path, entry in found.items() if not path.startswith(inside)} if inside else found


def tree_objects(listed: Manifest) -> Iterator[bytes]:
    """The content of each of git's objects for these folders, the top's last."""
    top: dict[str, Any] = {}
    for path, entry in listed.items():
        *folders, name = path.split("/")
        folder = top
        for part in folders:
            folder = folder.setdefault(part, {})
        folder[name] = entry
    return _folder_objects(top)


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
            return LINK, object_name("blob", os.fsencode(os.readlink(path)))
        if stat.S_ISREG(mode):
            return ("100755" if mode & 0o100 else "100644"), _hash_file(path)
    except OSError:
        return _UNKNOWN  # unreadable, or gone since it was listed
    return _UNKNOWN


def is_empty(entry: tuple[str, str]) -> bool:
    """Whether a manifest's entry is that of a file without content."""
    return entry[1] == object_name("blob", b"")


def object_name(kind: str, content: bytes) -> str:
    """Git's name of an object."""
    digest = object_digest(kind, len(content))
    digest.update(content)
    return digest.hexdigest()


def object_digest(kind: str, size: int) -> _Hash:
    """What becomes git's name of an object, by its content."""
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), size), **SHA1_OPTIONS)


def copy(source: Path, target: Path) -> Manifest:
    """Copy the files and links below `source` to the new directory `target`, by reflink where the disk can; what was
    copied, by content."""
    target.mkdir()
    manifest = {}
    made = {str(target)}
    for name, path in _walk(source):
        folder, _, last = f"{target}/{name}".rpartition("/")
        if folder not in made:
            os.makedirs(folder, exist_ok=True)
            made.add(folder)
        manifest[name] = copy_file(path, f"{folder}/{last}")
    return manifest


def copy_file(source: str, target: str) -> tuple[str, str]:
    """Copy a file or a link to the new path `target`, by reflink where the disk can; git mode and blob hash of it."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return entry_of(target)
    with open(source, "rb") as src, open(target, "x+b") as dst:
        status = os.fstat(src.fileno())
        is_executable = bool(status.st_mode & 0o100)
        digest = object_digest("blob", status.st_size)
        is_shared = _share_blocks(src.fileno(), dst.fileno())
        content = dst if is_shared else src
        for piece in iter(lambda: content.read(_PIECE), b""):
            digest.update(piece)
            if not is_shared:
                dst.write(piece)
        os.fchmod(dst.fileno(), 0o755 if is_executable else 0o644)  # as a clone has them
    return ("100755" if is_executable else "100644"), digest.hexdigest()


def _share_blocks(source: int, target: int) -> bool:
    """Whether the file system could make one file of the other's blocks."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _walk(root: Path) -> Iterator[tuple[str, str]]:
    """(relative path, path) of everything below `root` that is no directory, but for .git."""
    return ((name, entry.path) for name, entry in walk(root, skip=lambda folder: folder == ".git"))


def _folder_objects(folder: Mapping[str, Any]) -> Iterator[bytes]:
    content = b""
    for name, entry in sorted(folder.items(), key=lambda item: _sort_key(*item)):
        if isinstance(entry, dict):
            below = list(_folder_objects(entry))
            yield from below
            mode, digest = "40000", object_name("tree", below[-1])
        else:
            mode, digest = entry
        content += b"%s %s\0" % (mode.encode(), os.fsencode(name)) + bytes.fromhex(digest)
    yield content


def _sort_key(name: str, entry: object) -> bytes:
    """Git sorts a tree's entries as if directories' names ended with a slash."""
    return os.fsencode(name) + (b"/" if isinstance(entry, dict) else b"")


def _hash_file(path: str | Path) -> str:
    with open(path, "rb") as f:
        digest = object_digest("blob", os.fstat(f.fileno()).st_size)
        for piece in iter(lambda: f.read(_PIECE), b""):
            digest.update(piece)
    return digest.hexdigest()
