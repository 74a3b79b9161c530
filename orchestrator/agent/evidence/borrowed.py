"""Artifacts whose content is from elsewhere: a committed file's, written otherwise; an earlier run's; another commit's.

Files are compared by the words and numbers in them, in any order: line ends, encodings, blanks, quotes, the order of
keys and compression are no difference. Of what was measured a part is enough: rows of an old table, with new ones
behind them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Sequence

from orchestrator.shared.files import read_json, walk
from orchestrator.shared.packed import ERRORS, OPENERS
from orchestrator.shared.text import count, plain
from orchestrator.verdict.artifacts import benchmarks, timings
from orchestrator.verdict.artifacts.asked import has_figures, kind_of

_MOST_BYTES = 16 << 20  # of a file that is compared
_MOST_READ = 512 << 20  # of the commit's files in a run
_LEAST_WORDS = 6  # fewer may be the same by chance
_LEAST_FIGURES = 4  # that were measured before
_LEAST_DIGITS = 9  # of all its figures, which are no coincidence then
_MOST_TIMES_LARGER = 8  # than another of the same words
_DATA = re.compile(
    r"[^.]*|.*\.(csv|tsv|json|jsonl|ndjson|txt|md|rst|log|out|dat|yaml|yml|toml|xml|html)(\.(gz|bz2|xz))?"
)
_PROGRAM = re.compile(r".*\.(py|ipynb|sh)")
_LARGEST_PROGRAM = 256 << 10
_ENCODINGS = [(b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")]
_WORD = re.compile(r"[^\s,;:|\"'{}\[\]()<>=]+")
_KEY = r"(?:git[_-])?(?:commit|head)(?:[_-](?:id|sha|hash))?|git[_-](?:sha|hash)"
_NAMED_COMMIT = re.compile(rf"^\W{{0,3}}(?:{_KEY})\W{{1,5}}([0-9a-f]{{7,40}})\b", re.MULTILINE | re.IGNORECASE)
_COMMIT = re.compile(r"\b[0-9a-f]{40}\b")


class Sources:
    """Where a run's artifacts might have been taken from: the files of its commits, and earlier runs on this pod."""

    def __init__(self, run_dir: Path, trees: Mapping[Path, Iterable[str]], commits: Iterable[str]) -> None:
        self._run_dir = run_dir
        self._commits = [commit for commit in commits if commit]
        named = [(Path(tree, name), name.rpartition("/")[2].lower()) for tree, names in trees.items() for name in names]
        self._files = [path for path, name in named if _DATA.fullmatch(name)]
        self._programs = [path for path, name in named if _PROGRAM.fullmatch(name)]
        self._read = 0
        self._digests: Dict[Path, Optional[str]] = {}
        self._figures: Dict[Path, FrozenSet[str]] = {}

    def of(self, expected: Mapping[str, Any], artifact: Path, older: Sequence[Path] = ()) -> Optional[str]:
        """Where the artifact was taken from, as a clause; None if it was not. `older` are files that the stage has
        read, and that are neither the commit's nor the run's.
        """
        try:
            content = _content(artifact)
            if content is None:
                return None
            return (
                self._committed(content)
                or self._measured_before(expected, content)
                or self._other_commit(content)
                or self._earlier(expected, artifact)
                or self._in_older(content, older)
            )
        except ERRORS:
            return None

    def _committed(self, content: bytes) -> Optional[str]:
        own = _digest(content)
        for path in self._files if own else ():
            if self._is_about_as_large(path, len(content)) and self._digest_of(path) == own:
                return f"holds what {plain(path.name, 120)} of the commit holds, written otherwise"
        return None

    def _in_older(self, content: bytes, older: Sequence[Path]) -> Optional[str]:
        """Figures that stand, all of them, in a file from before the stage."""
        own = _digest(content) if older and timings.clocked(_text(content)) else None
        for path in older if own else ():
            if self._is_about_as_large(path, len(content)) and self._digest_of(path) == own:
                return f"holds what {plain(path, 120)} holds, which was there before the stage"
        return None

    def _measured_before(self, expected: Mapping[str, Any], content: bytes) -> Optional[str]:
        """More than half of its times and rates, to five digits or more, stand in one file of the commit."""
        own = timings.measured(_text(content), of_statistics=kind_of(expected) in benchmarks.KINDS)
        for path in self._that_may_hold(content) if len(own) >= _LEAST_FIGURES else ():
            old = len(own & self._figures_of(path))
            if old >= _LEAST_FIGURES and 2 * old > len(own):
                return f"holds figures of {plain(path.name, 120)} of the commit: {old} of {len(own)} that it measured"
        return None

    def perhaps(self, expected: Mapping[str, Any], artifact: Path, older: Sequence[Path] = ()) -> Optional[str]:
        """Where all of its few figures stand, times or rates among them, as a clause: too few to be sure."""
        text = text_of(artifact)
        content = text.encode()
        own = timings.figures(text) if timings.measured(text, of_statistics=False) else frozenset()
        for path in self._that_may_hold(content) if sum(map(len, own)) >= _LEAST_DIGITS else ():
            if own <= self._figures_of(path):
                return f"holds {count(len(own), 'figure')}, all of which stand in {plain(path.name, 120)} of the commit"
        for path in older if sum(map(len, own)) >= _LEAST_DIGITS else ():
            if own <= self._figures_of(path):
                return (
                    f"holds {count(len(own), 'figure')}, all of which stand in {plain(path, 120)}, older than the stage"
                )
        return None

    def _that_may_hold(self, content: bytes) -> Iterator[Path]:
        yield from (path for path in self._files if self._is_about_as_large(path, len(content)))
        yield from filter(_is_small, self._programs)

    def _figures_of(self, path: Path) -> FrozenSet[str]:
        if path not in self._figures:
            content = None
            if self._read < _MOST_READ:
                with contextlib.suppress(*ERRORS):
                    content = _content(path)
            self._read += len(content or b"")
            self._figures[path] = timings.figures(_text(content or b""))
        return self._figures[path]

    def _is_about_as_large(self, path: Path, size: int) -> bool:
        try:
            other = path.stat().st_size
        except OSError:
            return False
        return other <= _MOST_BYTES and other <= size * _MOST_TIMES_LARGER and size <= other * _MOST_TIMES_LARGER

    def _digest_of(self, path: Path) -> Optional[str]:
        if path not in self._digests:
            content = _content(path) if self._read < _MOST_READ else None
            self._read += len(content or b"")
            self._digests[path] = None if content is None else _digest(content)
        return self._digests[path]

    def _other_commit(self, content: bytes) -> Optional[str]:
        """Another commit that it says it is of, and not this one's."""
        text = _text(content)
        if any(commit in text or commit[:7] in _NAMED_COMMIT.findall(text) for commit in self._commits):
            return None
        others = self._commits_of_others() if _COMMIT.search(text) else ()
        named = [*_own_commits(text), *(found for found in _COMMIT.findall(text) if found in others)]
        other = next((n for n in named if not any(commit.startswith(n.lower()) for commit in self._commits)), None)
        return other and f"says that it is of commit {other[:12]}, which is not the run's"

    def _commits_of_others(self) -> FrozenSet[str]:
        """Of the other runs on this pod."""
        return frozenset(str(read_json(run / "plan.json").get("commit")) for run in self._other_runs())

    def _other_runs(self) -> List[Path]:
        try:
            with os.scandir(self._run_dir.parent) as found:
                return [Path(entry.path) for entry in found if entry.name != self._run_dir.name]
        except OSError:
            return []

    def _earlier(self, expected: Mapping[str, Any], artifact: Path) -> Optional[str]:
        """The same figures to the last digit, measured in another run."""
        if not has_figures(expected):
            return None
        own = artifact.read_bytes()
        files = ((run, name, entry) for run in self._other_runs() for name, entry in walk(run / "artifacts"))
        for run, name, entry in files:
            is_as_large = entry.is_file(follow_symlinks=False) and entry.stat().st_size == len(own)
            if is_as_large and Path(entry.path).read_bytes() == own:
                return f"equals {plain(name, 120)} of the run {plain(run.name, 80)}"
        return None


def text_of(path: Path) -> str:
    """What it holds, unpacked; blank where that cannot be read, or is too large."""
    try:
        return _text(_content(path) or b"")
    except ERRORS:
        return ""


def _is_small(program: Path) -> bool:
    """Whether few figures stand in it, and none by chance."""
    with contextlib.suppress(OSError):
        return program.stat().st_size <= _LARGEST_PROGRAM
    return False


def _content(path: Path) -> Optional[bytes]:
    """Unpacked; None of what is too large."""
    with open(path, "rb") as f:
        content = f.read(_MOST_BYTES + 1)
    for magic, unpack in OPENERS:
        if content.startswith(magic):
            with unpack(path, "rb") as f:
                content = f.read(_MOST_BYTES + 1)
    return content if len(content) <= _MOST_BYTES else None


def _text(content: bytes) -> str:
    encoding = next((name for mark, name in _ENCODINGS if content.startswith(mark)), "utf-8")
    return content.decode(encoding, "replace")


def _digest(content: bytes) -> Optional[str]:
    """Equal for files of the same words and numbers; None of those that hold few, or no number."""
    text = _text(content)
    if "\0" in text:
        return None
    words = sorted(map(_normal, _WORD.findall(text)))
    if len(words) < _LEAST_WORDS or not any(char.isdigit() for word in words for char in word):
        return None
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()


def _normal(word: str) -> str:
    try:
        return repr(float(word))
    except ValueError:
        return word.lower()


def _own_commits(text: str) -> Iterator[str]:
    """The commits that a text says it is of: in a line of it, under a key of its own, in a column."""
    yield from _NAMED_COMMIT.findall(text)
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        for key, value in found.items() if isinstance(found, dict) else ():
            if re.fullmatch(_KEY, key, re.IGNORECASE) and re.fullmatch("[0-9a-f]{7,40}", str(value)):
                yield str(value)
    header, _, rows = text.partition("\n")
    names = [name.strip().strip('"') for name in header.split(",")]
    for number, name in enumerate(names if len(names) > 1 else ()):
        if re.fullmatch(_KEY, name, re.IGNORECASE):
            cells = (row.split(",")[number].strip().strip('"') for row in rows.splitlines() if row.count(",") >= number)
            yield from (cell for cell in cells if _COMMIT.fullmatch(cell))  # a table may be about commits
