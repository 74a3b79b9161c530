"""Bring a run's files home: only what its records name, only regular files, only inside the run's directory.

What is asked for, and how much comes, is decided here: the pod can only send that, or say that it does not.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from orchestrator.config.inventory import MAX_BYTES, MAX_FILES, Pod
from orchestrator.errors import ContactLost, IntegrityError
from orchestrator.files import is_regular, on_this_disk, remember_sha256, sha256
from orchestrator.pod.client import Agent
from orchestrator.shared.events import Event
from orchestrator.shared.files import stays_away, walk
from orchestrator.shared.plan import artifacts_of
from orchestrator.store.run_directory import RunDirectory
from orchestrator.text import count, plain, size

_MOST_REFUSALS = 100
_LONGEST_ANSWER = 1 << 12
_PIECE = 1 << 16
_PROGRESS = 1 << 16
_LEFTOVER_AGE_S = 3600
# What a name can be wrong with on this machine's file system; anything else is wrong with the disk.
_NAME_ERRORS = frozenset(
    {
        *(errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY),
        *(errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG, errno.ELOOP),
    }
)


class File(NamedTuple):
    """A file as its record states it; `path` is relative to the run's directory."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Quota:
    """What one run may put on this machine's disk."""

    bytes: int = MAX_BYTES
    files: int = MAX_FILES


def quota_of(pod: Pod) -> Quota:
    """What the inventory allows a run of this pod."""
    return Quota(pod.max_bytes, pod.max_files)


class Refusal(Exception):
    """Why a file is not taken; a clause that follows its name."""


class Downloader:
    """What of a run comes home, over one connection.

    `note` takes the records, `take` fetches what they name and what is not here: first the evidence (what lies under
    stages/, and the artifacts `expected`), then the rest; `came` is called for each file that came, and each portion of
    a large one. `left` are files that the quota keeps on the pod.
    """

    def __init__(
        self,
        directory: Path,
        expected: Collection[str] = (),
        quota: Quota = Quota(),
        came: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory, self._expected, self._quota, self._came = directory, expected, quota, came
        self._evidence: list[File] = []
        self._others: list[File] = []
        self._refused: list[str] = []
        self._unnamed = 0
        self._folders: set[str] = set()
        sizes = list(_sizes(directory))
        self._bytes, self._files = sum(sizes), len(sizes)
        self._aside = directory.with_name(f".{directory.name}.{os.getpid()}")
        self._moved = self._named = 0
        self._most_named = 2 * max(quota.files, MAX_FILES)
        self.left: dict[str, int] = {}

    @classmethod
    def of(cls, run: RunDirectory, quota: Quota, came: Callable[[], None]) -> Downloader:
        """Of a run with its plan here."""
        asked = (artifact for stage in run.plan()["stages"] for artifact in artifacts_of(stage))
        return cls(run.path, {f"artifacts/{artifact['path']}" for artifact in asked}, quota, came)

    @property
    def refused(self) -> list[str]:
        """A sentence for each file that the pod offered and that was not taken, and one for what the limits left."""
        told = list(self._refused)
        if self._unnamed:
            told.append(f"{count(self._unnamed, 'more file')} that cannot be taken")
        if self.left:
            most = f"{size(self._quota.bytes)} (max_bytes) or {count(self._quota.files, 'file')} (max_files)"
            kept = f"{count(len(self.left), 'file')} of {size(sum(self.left.values()))} in all"
            told.append(
                f"{kept} stay on the pod: with them the run would take more than {most} here; raise the limit in the "
                "inventory and fetch again"
            )
        return told

    def note(self, events: Iterable[Event]) -> None:
        """Remember what the records of `events` name and what is not here, or not here as recorded.

        IntegrityError once more are named than can be held.
        """
        for event in events:
            listed = event.get("files") if event["event"] in ("stage_files", "stage_ended") else None
            for record in listed if isinstance(listed, list) else ():
                self._count_named()
                self._note(record)

    def take(self, agent: Agent, remote: str, *, everything: bool) -> None:
        """Fetch the evidence that was noted from the run directory `remote`, and with `everything` the rest."""
        wanted, self._evidence = self._evidence, []
        if everything:
            wanted, self._others = wanted + self._others, []
        admitted = [file for file in wanted if self._admit(file)]
        if admitted:
            self._receive(agent, remote, admitted)

    def _count_named(self) -> None:
        self._named += 1
        if self._named > self._most_named:
            names = f"names more than {self._most_named} files"
            raise IntegrityError(
                f"the journal of {self._directory.name} {names}: raise max_files in the inventory if that is right"
            )

    def _note(self, record: Any) -> None:
        try:
            file = file_of(record)
        except Refusal as e:
            self._refuse(record.get("path") if isinstance(record, dict) else record, e)
            return
        if not self._is_here(file):
            is_evidence = file.path.startswith("stages/") or file.path in self._expected
            (self._evidence if is_evidence else self._others).append(file)

    def _is_here(self, file: File) -> bool:
        """By its content: a disk that failed, or an earlier attempt at the stage, may have left as many other bytes."""
        path = f"{self._directory}/{file.path}"
        return is_regular(path, file.bytes) and sha256(path) == file.sha256

    def _admit(self, file: File) -> bool:
        """Whether the file still fits under the limits; then it counts."""
        if self._bytes + file.bytes > self._quota.bytes or self._files >= self._quota.files:
            self.left[file.path] = file.bytes
            return False
        self._bytes += file.bytes
        self._files += 1
        return True

    def _refuse(self, path: object, why: object) -> None:
        if len(self._refused) < _MOST_REFUSALS:
            self._refused.append(f"{plain(path)}: {plain(why)}")
        else:
            self._unnamed += 1

    def _receive(self, agent: Agent, remote: str, files: Sequence[File]) -> None:
        """Over another connection for bulk, as long as each brings it further, and over this one or not at all."""
        left = deque(files)
        with on_this_disk(self._directory):
            self._drop_leftovers()
            try:
                while left:
                    self._receive_some(agent, remote, left)
            finally:
                self._aside.unlink(missing_ok=True)

    def _receive_some(self, agent: Agent, remote: str, left: deque[File]) -> None:
        before = self._moved
        try:
            self._receive_rest(agent, remote, left)
        except ContactLost:
            if self._moved - before < _PROGRESS:
                raise

    def _receive_rest(self, agent: Agent, remote: str, left: deque[File]) -> None:
        there = [self._there(file) for file in left]
        request = json.dumps([(file.path, file.bytes, at) for file, at in zip(left, there, strict=True)]).encode()
        expected = sum(file.bytes for file in left) - sum(there)
        with agent.stream("send", remote, input=request, expected=expected) as stream:
            for at in there:
                file = left[0]
                if self._receive_one(stream, file, at):
                    left.popleft()
                else:  # what was here of it was no part of it
                    left.rotate(-1)

    def _receive_one(self, stream: BinaryIO, file: File, there: int) -> bool:
        """Whether that is all there is to say of the file, of which `there` bytes came before."""
        answer = stream.readline(_LONGEST_ANSWER)
        if not answer.startswith((b"+\n", b"-")):
            raise IntegrityError(f"the files of {self._directory.name} arrived damaged")
        part = self._part(file)
        try:
            if answer.startswith(b"-"):
                raise Refusal(f"the pod did not send it: it {answer[1:].decode(errors='replace')}")
            if self._copy(stream, part, there, file.bytes) != file.sha256:
                part.unlink(missing_ok=True)
                if there:
                    return False
                raise Refusal("its sha256 is not the recorded one")
            self._place(part, file)
            self._came()
        except Refusal as e:
            part.unlink(missing_ok=True)
            self._refuse(file.path, e)
        return True

    def _part(self, file: File) -> Path:
        """Where a file lies until all of it is here; a large one is gone on with by whoever fetches it next."""
        if not _is_large(file):
            return self._aside
        name = hashlib.sha256(f"{file.path} {file.sha256}".encode()).hexdigest()[:16]
        return self._directory.with_name(f".{self._directory.name}.{name}")

    def _there(self, file: File) -> int:
        """How much of the file came before."""
        with suppress(FileNotFoundError):
            size = self._part(file).stat().st_size if _is_large(file) else 0
            return size if size <= file.bytes else 0
        return 0

    def _copy(self, stream: BinaryIO, part: Path, there: int, size: int) -> str:
        """Write the bytes that follow the `there` ones; the hash of all. Another process may write the same."""
        digest = hashlib.sha256()
        with open(part, "r+b", buffering=0, opener=_made) as aside:
            while there > aside.tell() and (piece := aside.read(min(_PIECE, there - aside.tell()))):
                digest.update(piece)
            left = size - there
            while left > 0:
                piece = stream.read(min(left, _PIECE))
                if not piece:
                    raise IntegrityError(f"the files of {self._directory.name} arrived cut short")
                digest.update(piece)
                left -= len(piece)
                self._count(len(piece))
                rest = memoryview(piece)
                while rest:
                    rest = rest[aside.write(rest) :]
            aside.truncate(size)
        return digest.hexdigest()

    def _count(self, bytes_: int) -> None:
        """So many came; of a large file a part is progress too."""
        before, self._moved = self._moved, self._moved + bytes_
        if before // _PROGRESS < self._moved // _PROGRESS:
            self._came()

    def _place(self, part: Path, file: File) -> None:
        """Give what was written aside its name."""
        folder, _, name = file.path.rpartition("/")
        target = f"{self._directory}/{file.path}"
        try:
            self._make(folder)
            _distinct(target, name)
            if part.exists() or not self._is_here(file):  # another process may have been faster
                os.replace(part, target)
        except OSError as e:
            if e.errno in _NAME_ERRORS:
                raise Refusal(f"this disk cannot hold it: {e.strerror}") from e
            raise
        remember_sha256(target, file.sha256)

    def _make(self, folder: str) -> None:
        """Make the folder of the run's directory, once."""
        if folder in self._folders:
            return
        parent, _, name = folder.rpartition("/")
        if parent:
            self._make(parent)
        path = f"{self._directory}/{folder}"
        _distinct(path, name)
        os.makedirs(path, exist_ok=True)
        self._folders.add(folder)

    def _drop_leftovers(self) -> None:
        """Delete what a process that was killed has left aside."""
        for path in self._directory.parent.glob(f".{self._directory.name}.*"):
            with suppress(FileNotFoundError):  # of a process that is alive, and has just given it its name
                if path.is_file() and time.time() - path.stat().st_mtime > _LEFTOVER_AGE_S:
                    path.unlink()


def _made(path: str, flags: int) -> int:
    """As `os.open`, of a file that may not be there yet."""
    return os.open(path, flags | os.O_CREAT, 0o666)


def _is_large(file: File) -> bool:
    """Whether what came of it is worth keeping."""
    return file.bytes > _PROGRESS


def _sizes(directory: Path) -> Iterator[int]:
    """Of all files there, but for one that is just given another name."""
    for _, entry in walk(directory):
        with suppress(FileNotFoundError):
            yield entry.stat(follow_symlinks=False).st_size


def file_of(record: Any) -> File:
    """The file that a record names; Refusal if it names none of a run's directory."""
    if not isinstance(record, dict):
        raise Refusal("the record is none of a file")
    path, bytes_, digest = record.get("path"), record.get("bytes"), record.get("sha256")
    if type(path) is not str or type(bytes_) is not int or bytes_ < 0 or type(digest) is not str:
        raise Refusal("the record lacks path, bytes or sha256")
    parts = path.split("/")
    if len(parts) < 2 or not {"", ".", ".."}.isdisjoint(parts):
        raise Refusal("it would lie outside the run's directory")
    if parts[0] not in ("stages", "artifacts"):
        raise Refusal("expected a file under stages/ or artifacts/")
    why = stays_away(path)
    if why:
        raise Refusal(why)
    return File(path, bytes_, digest)


def _distinct(path: str, name: str) -> None:
    """Refusal if what is at `path` has another name, as on a disk that takes a capital letter for a small one."""
    if os.path.lexists(path) and name not in os.listdir(os.path.dirname(path)):
        raise Refusal("this disk cannot hold it beside a file whose name it takes for the same")
