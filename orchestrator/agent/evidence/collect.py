"""What a stage left behind: its artifacts, its files with their hashes, and what it did to what is not its own."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence

from orchestrator.agent.evidence.borrowed import Sources, text_of
from orchestrator.agent.evidence.measuring import Measuring, is_derived
from orchestrator.agent.evidence.secret_files import take_away
from orchestrator.agent.host.moment import Moment
from orchestrator.agent.layout import Layout
from orchestrator.shared.files import Refused, copy_inside, describe, open_inside, snapshot, walk
from orchestrator.shared.redaction import Redactor
from orchestrator.shared.stage_record import File
from orchestrator.shared.text import count, plain
from orchestrator.shared.tree import Manifest, copy_file, entry_of, is_empty
from orchestrator.verdict.artifacts.asked import STREAMS
from orchestrator.verdict.artifacts.notebook import cells_of_python
from orchestrator.verdict.artifacts.timings import clocked

_MOST_REFUSED = 1000
_MOST_FILES = 1_000_000
_MOST_BYTES = 256 << 30
_LINE_BYTES = 1 << 20


class Figures(NamedTuple):
    """Of a stage's artifacts: where each comes from whose content is from elsewhere, as a clause; and, as sentences,
    what can be judged by nobody but a person.
    """

    borrowed: Dict[str, str]
    doubts: List[str]


class Artifacts:
    """The run's artifacts/, watched over its stages: what each one made, and what it did to the others'; `sources` are
    where they might have been taken from.
    """

    def __init__(self, places: Layout, committed: Iterable[Manifest], sources: Sources) -> None:
        self._places = places
        self._sources = sources
        files = (item for manifest in committed for item in manifest.items())
        self._committed = {entry[1]: name for name, entry in files if not is_empty(entry)}
        self._began = Moment(places.run_dir)
        self._before = snapshot(places.artifacts)
        self._there: frozenset[str] = frozenset()  # when the stage began

    def begin(self, expected: Sequence[Mapping[str, Any]], tree: Path) -> dict[str, bool]:
        """A stage begins: whether each artifact that is expected of it, or the file in its tree that it is to be taken
        from, is there already.
        """
        self._began, self._there = Moment(self._places.run_dir), frozenset(self._before)
        return {a["path"]: any(map(os.path.lexists, self._places_of(a, tree))) for a in expected}

    def deliver(self, expected: Mapping[str, Any], stage: str, tree: Path) -> str | None:
        """Bring an artifact into artifacts/ if it is made elsewhere; what is wrong with it, as a clause."""
        source = expected.get("from")
        try:
            if source in STREAMS:
                copy_inside(self._places.run_dir, f"stages/{stage}/{source}", self._places.artifacts, expected["path"])
            elif source:
                name = source[len("tree:") :]
                copy_inside(tree, name, self._places.artifacts, expected["path"])
            else:
                with open_inside(self._places.artifacts, expected["path"]) as f:
                    return self._link_outside(os.fstat(f.fileno()))
        except FileNotFoundError:
            return "is missing"
        except Refused as e:
            return str(e)
        except OSError as e:
            return "was made twice" if e.errno == errno.EEXIST else f"cannot be kept: {e.strerror}"
        return None

    def older(self, expected: Iterable[Mapping[str, Any]], tree: Path) -> list[str]:
        """Those that were last written before the stage began, wherever it has brought them from."""
        return [a["path"] for a in expected if self._began.is_after(list(self._places_of(a, tree))[-1])]

    def equal_to_committed(self, expected: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Those that have the content of a file of the commit, with its name."""
        blobs = {a["path"]: entry_of(self._places.artifacts / a["path"])[1] for a in expected}
        return {path: self._committed[blob] for path, blob in blobs.items() if blob in self._committed}

    def figures(self, expected: Sequence[Mapping[str, Any]], measuring: Measuring) -> Figures:
        """Where the content of artifacts is from, if it was not made, or not measured, in this stage."""
        if not expected:  # a Python has read some hundred files
            return Figures({}, [])
        files = measuring.files()
        older = [path for path in files if self.is_from_before(path)]
        derived = is_derived(files, self._places, self._there)
        timed = measuring.has_clock or measuring.others or derived
        found = Figures({}, [])
        for asked in expected:
            path, artifact = asked["path"], self._places.artifacts / asked["path"]
            source = self._sources.of(asked, artifact, older)
            if source:
                found.borrowed[path] = source
            elif not asked.get("reproducible"):
                perhaps = self._sources.perhaps(asked, artifact, older)
                perhaps = (
                    perhaps
                    or _not_run(artifact, ran=measuring.ran_cells or derived)
                    or _unmeasured(asked, artifact, measuring, timed=bool(timed))
                )
                found.doubts.extend(f"artifact {path} {clause}" for clause in filter(None, [perhaps]))
        return found

    def is_from_before(self, path: Path) -> bool:
        """Whether it was written before the stage, and not by this run."""
        return self._places.run_dir not in path.parents and self._began.is_after(path)

    def _link_outside(self, status: os.stat_result) -> str | None:
        """What is wrong with a file that can also be reached, and may have been made, outside artifacts/."""
        if status.st_nlink == 1:
            return None
        names = sum(entry.inode() == status.st_ino for _, entry in walk(self._places.artifacts))
        return "has another name outside artifacts/ (a hard link)" if names < status.st_nlink else None

    def made(self) -> tuple[list[str], list[str]]:
        """Paths in artifacts/ that are new since the last call, and those that were there and changed or went."""
        now = snapshot(self._places.artifacts)
        fresh = sorted(name for name in now if name not in self._before)
        if self._part(fresh, Counter(identity.inode for identity in now.values())):
            now = snapshot(self._places.artifacts)
        overwritten = sorted(name for name, identity in self._before.items() if now.get(name) != identity)
        self._before = now
        return fresh, overwritten

    def _part(self, fresh: Iterable[str], names: Mapping[int, int]) -> bool:
        """Make those of the `fresh` files that have names elsewhere files of their own, whether there are any: what is
        done to them there, as when the tree is set in order, would be the next stage's doing here. `names`: by inode.
        """
        parted = False
        for path in (self._places.artifacts / name for name in fresh):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_nlink > names[status.st_ino]:
                aside = path.with_name(f".{path.name}.{os.getpid()}")
                with contextlib.suppress(OSError):
                    copy_file(str(path), str(aside))
                    os.replace(aside, path)
                    parted = True
        return parted

    def take_away(self, names: Sequence[str], redactor: Redactor) -> dict[str, str]:
        """Remove those of the artifacts `names` that hold a secret value; why, by artifact."""
        removed = take_away(self._places.artifacts, names, redactor)
        for name in removed:
            self._before.pop(name, None)
        return removed

    def _places_of(self, expected: Mapping[str, Any], tree: Path) -> Iterator[Path]:
        yield self._places.artifacts / expected["path"]
        if (expected.get("from") or "").startswith("tree:"):
            yield tree / expected["from"][len("tree:") :]


def _not_run(artifact: Path, *, ran: bool) -> str | None:
    """Why the cells of a notebook are no results, as a clause."""
    cells = cells_of_python(text_of(artifact)) if artifact.suffix == ".ipynb" and not ran else 0
    return f"holds {count(cells, 'cell')} of code, and no cell was run in its stage" if cells else None


def _unmeasured(asked: Mapping[str, Any], artifact: Path, measuring: Measuring, *, timed: bool) -> str | None:
    """Why what only a clock tells was not measured, as a clause."""
    if timed and not measuring.unwaited:
        return None
    more = asked.get("checks") or asked.get("figures")  # which may be about times
    own = () if more else [*(asked.get("keys") or ()), *(asked.get("columns") or ())]
    names = plain(", ".join(clocked(text_of(artifact), own, measuring.given)[:3]), 120)
    if not names:
        return None
    if not timed:
        return f"holds {names}, and nothing was timed in its stage"
    return f"holds {names}, and nobody waited for the GPU in its stage"


def describe_files(run_dir: Path, names: Sequence[str]) -> tuple[list[File], list[dict[str, str]]]:
    """The hashes of the regular files `names` (relative to the run's directory), and the refusals of the others.

    Hashing ends somewhere: sparse files of terabytes, and millions of files, are refused.
    """
    files: list[File] = []
    refused: list[dict[str, str]] = []
    room = _MOST_BYTES
    for name in names:
        try:
            if not name.isprintable():
                raise Refused("has a name that cannot be shown")
            if len(files) == _MOST_FILES:
                raise Refused(f"is beyond the {_MOST_FILES} files that are kept of a stage")
            files.append(describe(run_dir, name, room))
            room -= files[-1]["bytes"]
        except (Refused, OSError) as e:
            refused.append({"path": plain(ascii(name)[1:-1]), "reason": plain(getattr(e, "strerror", None) or e)})
    return files, refused[:_MOST_REFUSED]


def in_lines(files: Sequence[File]) -> Iterator[list[File]]:
    """`files` in parts, the last one perhaps empty, that each are a journal line well below what a reader takes."""
    part: list[File] = []
    size = 0
    for file in files:
        size += len(json.dumps(file))
        if size > _LINE_BYTES:
            yield part
            part, size = [], len(json.dumps(file))
        part.append(file)
    yield part
