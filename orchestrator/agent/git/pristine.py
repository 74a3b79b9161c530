"""The pod's trees, each under its hash: brought file by file, verified, and known again without being read.

Trees share the files that they have in common, by hard links: none of them is ever run in. What each file was when it
was last read is kept beside the tree's files, in its .git, which is no part of the tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import BinaryIO, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from orchestrator.agent.evidence.moment import tick_after
from orchestrator.shared import tree
from orchestrator.shared.answers import TreeChange
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import Identity, folders_of, identity, walk, write_atomically
from orchestrator.shared.plan import Submodule
from orchestrator.shared.schema import first_error
from orchestrator.shared.tree import Manifest

_RECORD = ".git/files.json"
_PIECE = 1 << 16
Known = Dict[str, Tuple[Tuple[str, str], Identity]]
_LONGEST_HEAD = 128
_LONGEST_CHANGE = 1 << 30


class Wanted(NamedTuple):
    """A tree by its hash, with its submodules."""

    tree: str
    submodules: Sequence[Submodule]

    def why_not(self, manifest: Manifest) -> Optional[str]:
        """None if the manifest is that of the tree, else a sentence."""
        return tree.wrong_hash(manifest, self.tree, self.submodules)


class Pristine:
    """The tree in the directory `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: Known = {}

    def scan(self) -> Manifest:
        """What is there; content is read only of files that are not as they were when it was last read."""
        known = self._recorded()
        found: Known = {}
        for path, entry in walk(self.root, skip=lambda folder: folder == ".git"):
            now = identity(entry.stat(follow_symlinks=False))
            before = known.get(path)
            found[path] = before if before and before[1] == now else (tree.entry_of(entry.path), now)
        self._known = {}
        if found != known:
            self.record(found)
        self._known = found
        return {path: entry for path, (entry, _) in found.items()}

    def record(self, more: Known) -> None:
        """Keep what files are, but for those that could be written once more at the time that they bear."""
        found = {**self._known, **more}
        path = self.root / _RECORD
        with contextlib.suppress(OSError):  # a disk that is full: they are read again
            path.parent.mkdir(exist_ok=True)
            newest = max((now.changed for _, now in found.values()), default=0)
            tick = tick_after(newest, path.parent)
            settled = {name: (*entry, *now) for name, (entry, now) in found.items() if now.changed < tick}
            write_atomically(path, json.dumps(settled, separators=(",", ":")))

    def forget(self) -> None:
        """Have everything read the next time."""
        with contextlib.suppress(OSError):
            (self.root / _RECORD).unlink()

    def _recorded(self) -> Known:
        try:
            found = json.loads((self.root / _RECORD).read_bytes())
            return {path: ((mode, blob), Identity(*now)) for path, (mode, blob, *now) in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):  # there is none, or it is damaged
            return {}


def adopt(incoming: Path, target: Path, wanted: Wanted) -> None:
    """Give the directory its name as a tree; Failure if it is not that tree, which is then left."""
    wrong = wanted.why_not(Pristine(incoming).scan())
    if wrong:
        raise Failure(f"{incoming} did not arrive whole: {wrong}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and wanted.why_not(Pristine(target).scan()):
        discard(target)
    try:
        incoming.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        discard(incoming)  # someone else was faster, with the same tree


def bring(trees: Path, wanted: Wanted, base: Optional[str], stream: BinaryIO) -> None:
    """Make `trees`/<tree> of what the stream holds: a line of JSON that says what to do to the tree `base` (None: to an
    empty one), then the content of its files as `git cat-file --batch` writes it.

    Failure if that is not the tree; nothing is left then.
    """
    incoming = trees / f".incoming-{wanted.tree}-{secrets.token_hex(4)}"
    try:
        _fill(incoming, trees / base if base else None, wanted, stream)
        adopt(incoming, trees / wanted.tree, wanted)
    except FileExistsError as e:
        raise Failure(f"the commit has two paths that are one on the pod's file system: {e.filename}") from e
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def discard(folder: Path) -> None:
    """Take the directory away in one step, then delete it."""
    aside = folder.with_name(f".{folder.name}.gone-{os.getpid()}")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _fill(incoming: Path, base: Optional[Path], wanted: Wanted, stream: BinaryIO) -> None:
    files, removed = _change(stream)
    source = Pristine(base) if base else None
    kept = _without(source.scan(), {*files, *removed}) if source else {}
    wrong = wanted.why_not({**kept, **files})
    if wrong:  # before anything is sent
        raise Failure(f"{incoming} would not be whole: {wrong}")
    incoming.parent.mkdir(parents=True, exist_ok=True)
    for folder in sorted({"", *folders_of({**kept, **files})}):  # parents sort before what is in them
        place = f"{incoming}/{folder}"
        os.mkdir(place)
        os.chmod(place, 0o755)
    found = _share(source, incoming, kept) if source else {}
    for path, (mode, blob) in files.items():
        _write(f"{incoming}/{path}", mode, blob, stream)
        found[path] = (mode, blob), identity(os.lstat(f"{incoming}/{path}"))
    Pristine(incoming).record(found)


def _change(stream: BinaryIO) -> Tuple[Manifest, List[str]]:
    """The files that are to come, and the paths that are to go."""
    try:
        change: TreeChange = json.loads(stream.readline(_LONGEST_CHANGE))
        wrong = first_error(change, TreeChange, "it")
        files = {} if wrong else {path: (mode, blob) for path, (mode, blob) in change["files"].items()}
    except ValueError as e:
        raise Failure(f"what to change did not arrive whole: {e}") from e
    if wrong or any(map(_leads_out, files)):
        raise Failure(f"what to change is not as it should be: {wrong or 'a path leads out of the tree'}")
    return files, change["removed"]


def _leads_out(path: str) -> bool:
    return "\0" in path or not {"", ".", "..", ".git"}.isdisjoint(path.split("/"))


def _without(manifest: Manifest, gone: Set[str]) -> Manifest:
    """All but what is called so, and what is below it."""
    return {path: entry for path, entry in manifest.items() if gone.isdisjoint((path, *folders_of([path])))}


def _share(base: Pristine, incoming: Path, kept: Manifest) -> Known:
    """Have the files of `base` in `incoming` too; what they are, in both."""
    found: Known = {}
    for path, entry in kept.items():
        source, target = f"{base.root}/{path}", f"{incoming}/{path}"
        before = identity(os.lstat(source))
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links, or a file that has too many
            tree.copy_file(source, target)
            continue  # it is read when it is adopted
        now = identity(os.lstat(target))
        if now[:-1] == before[:-1]:  # a link changes the last of the times alone
            found[path] = entry, now
    base.record(found)
    return found


def _write(path: str, mode: str, blob: str, stream: BinaryIO) -> None:
    """The next content of the stream as a new file or link; Failure if it is not that of the blob."""
    head = stream.readline(_LONGEST_HEAD).split()
    if len(head) != 3 or head[0] != blob.encode() or not head[2].isdigit():
        raise Failure(f"the content of {path} did not arrive whole")
    left = int(head[2])
    digest = hashlib.sha1(b"blob %d\0" % left, **tree.SHA1_OPTIONS)
    if mode == "120000":
        content = stream.read(left)
        digest.update(content)
        os.symlink(content, os.fsencode(path))
    else:
        with open(path, "xb") as f:
            while left:
                piece = stream.read(min(left, _PIECE))
                if not piece:
                    raise Failure(f"the content of {path} did not arrive whole")
                digest.update(piece)
                f.write(piece)
                left -= len(piece)
            os.fchmod(f.fileno(), 0o755 if mode == "100755" else 0o644)
    if digest.hexdigest() != blob or stream.read(1) != b"\n":
        raise Failure(f"the content of {path} did not arrive whole: it is not that of {blob}")
