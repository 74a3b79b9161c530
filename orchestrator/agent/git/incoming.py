"""A tree on its way to the pod: what has come of it is kept, and gone on with over the next connection.

What comes is a stream: a line of JSON that says what to do to a tree that is there (or to an empty one), then the
content of its files as `git cat-file --batch` writes it. The laptop makes the same stream again, from any byte on.

<trees>/.incoming-<tree>-<stream>/   change: the line, as far as it came; tree/: the files; lock: who writes them
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from orchestrator.agent.git.pristine import Known, Pristine, Wanted, adopt
from orchestrator.shared import disk, tree
from orchestrator.shared.answers import TreeChange
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import folders_of, identity
from orchestrator.shared.locks import is_held, take
from orchestrator.shared.schema import first_error
from orchestrator.shared.tree import Manifest

if TYPE_CHECKING:
    from hashlib import _Hash

# How long somebody else who brings the same is waited for: one whose line went silent is gone by then.
_PATIENCE_S = 65.0
_PREFIX = ".incoming-"
_PIECE = 1 << 16
_LONGEST_CHANGE = 256 << 20
_LONGEST_HEAD = 128
_AFTER = b"\n"  # what git writes after a content


class _EndedEarly(Failure):
    """The stream did; what came of it is good."""


class _File(NamedTuple):
    """One that is to come, as the change names it."""

    mode: str
    blob: str
    size: int

    @property
    def head(self) -> bytes:
        """What git writes before the content."""
        return f"{self.blob} blob {self.size}\n".encode()


_Change = Tuple[Dict[str, _File], List[str]]
"""The files that come, in their order, and the paths that go."""


class Incoming:
    """What has come of the stream called `stream`, which makes the tree `wanted` of the tree `base` (None: nothing)."""

    def __init__(self, trees: Path, wanted: Wanted, base: Optional[str], stream: str) -> None:
        self._wanted, self._target = wanted, trees / wanted.tree
        self._base = Pristine(trees / base) if base else None
        self._place = trees / f"{_PREFIX}{wanted.tree}-{stream}"

    def go_on(self, ready: Callable[[int], None], stream: BinaryIO) -> None:
        """Say by `ready` how much has come, and take what follows; with the last of it the tree gets its name.

        Failure if that is not the tree, and nothing is left then; or if the stream ends too early, and all is kept.
        """
        with self._alone():
            if self._target.is_dir() and not self._wanted.why_not(Pristine(self._target).scan()):
                self._drop()  # an answer that said so was lost, or somebody else was faster
                return
            try:
                ready(position(self._place))
                self._take(stream)
            except _EndedEarly as e:
                raise Failure(f"{e}; what came is kept") from e
            except FileExistsError as e:
                self._drop()
                raise Failure(f"the commit has two paths that are one on the pod's file system: {e.filename}") from e
            except OSError as e:
                if e.errno in disk.FULL:
                    self._drop()
                raise
            except Failure:
                self._drop()
                raise
            self._drop()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else writes where this does: beside somebody who does so all the time, all of it is taken anew."""
        with contextlib.ExitStack() as stack:
            if not stack.enter_context(_held(self._place)):
                self._place = self._place.with_name(f"{self._place.name}-{secrets.token_hex(4)}")
                stack.enter_context(_held(self._place))
            yield

    def _take(self, stream: BinaryIO) -> None:
        files, removed = self._change(stream)
        entries = {path: (file.mode, file.blob) for path, file in files.items()}
        kept = _without(self._base.scan(), {*files, *removed}) if self._base else {}
        wrong = self._wanted.why_not({**kept, **entries})
        if wrong:
            raise Failure(f"{self._place} would not be whole: {wrong}")
        root = self._place / "tree"
        resumed = root.exists()
        _make_folders(root, {*kept, *files}, resumed)
        found = _share(self._base, root, kept) if self._base else {}
        for path, file in files.items():
            there = _size(f"{root}/{path}") if resumed else None
            if there == file.size:  # it is read when the tree is adopted
                continue
            resumed = False  # this is where the stream goes on
            _write(f"{root}/{path}", file, there, stream)
            found[path] = entries[path], identity(os.lstat(f"{root}/{path}"))
        Pristine(root).record(found)
        adopt(root, self._target, self._wanted)

    def _change(self, stream: BinaryIO) -> _Change:
        """What is to be done, as the line says that comes now, or came before."""
        file = self._place / "change"
        with file.open("ab") as f:
            while not _is_whole(file) and f.tell() < _LONGEST_CHANGE:
                piece = stream.readline(_PIECE)
                if not piece:
                    raise _EndedEarly("what to change did not arrive whole")
                f.write(piece)
                f.flush()
        return _read(file)

    def _drop(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)


def is_left(place: Path) -> bool:
    """Whether nobody writes to what is there of a stream."""
    return not (place / "lock").exists() or not is_held(place / "lock")


def position(place: Path) -> int:
    """How many bytes of its stream are in the directory."""
    file = place / "change"
    if not file.exists() or not _is_whole(file):
        return file.stat().st_size if file.exists() else 0
    at = file.stat().st_size
    for path, entry in _read(file)[0].items():
        there = _size(f"{place}/tree/{path}")
        if there is None:
            return at
        at += len(entry.head) + there
        if there < entry.size:
            return at
        at += len(_AFTER)
    return at


@contextlib.contextmanager
def _held(place: Path) -> Iterator[bool]:
    """Whether the directory, made if need be, is ours alone, after a while at most."""
    fd = _lock_in(place)
    try:
        yield take(fd, _PATIENCE_S) and _is_at(fd, place / "lock")
    finally:
        os.close(fd)


def _lock_in(place: Path) -> int:
    """The lock's file, open. Whoever is done with the directory removes it, maybe between its making and this."""
    while True:
        try:
            place.mkdir(parents=True, exist_ok=True)
            return os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileNotFoundError, FileExistsError):
            if os.path.lexists(place) and not place.is_dir():
                raise


def _is_at(fd: int, path: Path) -> bool:
    """Whether the open file still has that name: who held its lock may have removed it."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _is_whole(file: Path) -> bool:
    with file.open("rb") as f:
        return f.seek(0, os.SEEK_END) > 0 and f.seek(-1, os.SEEK_END) >= 0 and f.read() == b"\n"


def _read(file: Path) -> _Change:
    try:
        change: TreeChange = json.loads(file.read_bytes())
        wrong = first_error(change, TreeChange, "it")
        files = {} if wrong else {path: _File(m, blob, int(size)) for path, (m, blob, size) in change["files"].items()}
    except (ValueError, RecursionError) as e:
        raise Failure(f"what to change is not as it should be: {e}") from e
    if wrong or any(map(_leads_out, files)):
        raise Failure(f"what to change is not as it should be: {wrong or 'a path leads out of the tree'}")
    return files, change["removed"]


def _leads_out(path: str) -> bool:
    return "\0" in path or not {"", ".", "..", ".git"}.isdisjoint(path.split("/"))


def _without(manifest: Manifest, gone: Set[str]) -> Manifest:
    """All but what is called so, and what is below it."""
    return {path: entry for path, entry in manifest.items() if gone.isdisjoint((path, *folders_of([path])))}


def _size(path: str) -> Optional[int]:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return None


def _make_folders(root: Path, files: Set[str], resumed: bool) -> None:
    for folder in sorted({"", *folders_of(files)}):  # parents sort before what is in them
        place = f"{root}/{folder}"
        if not (resumed and os.path.isdir(place)):
            os.mkdir(place)
        os.chmod(place, 0o755)


def _share(base: Pristine, root: Path, kept: Manifest) -> Known:
    """Have the files of `base` in `root` too; what they are, in both."""
    found: Known = {}
    for path, entry in kept.items():
        source, target = f"{base.root}/{path}", f"{root}/{path}"
        before = identity(os.lstat(source))
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            if identity(os.lstat(target)) != before:
                raise
        except OSError:  # a file system without hard links, or a file that has too many
            tree.copy_file(source, target)
            continue  # it is read when it is adopted
        now = identity(os.lstat(target))
        if now[:-1] == before[:-1]:  # a link changes the last of the times alone
            found[path] = entry, now
    base.record(found)
    return found


def _write(path: str, file: _File, there: Optional[int], stream: BinaryIO) -> None:
    """The next content of the stream as a new file or link, of which `there` bytes may be there; Failure if that is
    not the content of its blob.
    """
    if there is None:
        head = stream.readline(_LONGEST_HEAD)
        if head != file.head:
            raise (_EndedEarly if file.head.startswith(head) else Failure)(f"the content of {path} did not arrive")
    digest = tree.object_digest("blob", file.size)
    if file.mode == "120000":
        content = stream.read(file.size)
        if len(content) < file.size:
            raise _EndedEarly(f"the content of {path} did not arrive whole")
        digest.update(content)
        os.symlink(content, os.fsencode(path))
    else:
        _write_content(path, file, there, stream, digest)
    after = stream.read(len(_AFTER))
    if digest.hexdigest() != file.blob or after not in (_AFTER, b""):
        raise Failure(f"the content of {path} did not arrive whole: it is not that of {file.blob}")
    if not after:
        raise _EndedEarly(f"what follows {path} did not arrive")


def _write_content(path: str, file: _File, there: Optional[int], stream: BinaryIO, digest: _Hash) -> None:
    with open(path, "xb" if there is None else "r+b") as f:
        os.fchmod(f.fileno(), 0o755 if file.mode == "100755" else 0o644)
        while there is not None and (piece := f.read(_PIECE)):
            digest.update(piece)
        left = file.size - f.tell()
        while left > 0:
            piece = stream.read(min(left, _PIECE))
            if not piece:
                raise _EndedEarly(f"the content of {path} did not arrive whole")
            digest.update(piece)
            f.write(piece)
            left -= len(piece)
