"""What the figures of a stage may come from: clocks that were read, other programs, files that were there before."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Collection, Iterable, Iterator, List, Mapping, Optional, Sequence, Set

from orchestrator.agent.layout import Layout
from orchestrator.shared.files import walk

_MOST = 500
_WORD = re.compile(r"[^\s`()<>|;&=]+")
_QUOTES = re.compile("[\"']")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_ARGUMENT = re.compile(r"(?:-[\w-]+=)?([-+.\deE]+)")
_ADDRESS = re.compile("^file:(?://(?:localhost)?(?=/))?")
_GOES_TO = re.compile(r"(?<![\w/.-])(?:cd|pushd)\s+(?:--\s+)?([^\s;&|()<>]+)")
_SETS = re.compile(r"^\s*(?:export\s+)?(\w+)=[\"']?([^\s\"';]+)", re.MULTILINE)


@dataclass(frozen=True)
class Measuring:
    """Of one stage: whether a Python of it read a clock, which `others` may have, and whether one
    used CUDA and never waited for it, and whether it `ran_cells` of notebooks; its `texts` are the scripts of its
    shells and its own command, `argv` what that was given, and `read` what its Pythons have.
    """

    has_clock: bool
    unwaited: bool
    ran_cells: bool
    others: Sequence[str]
    texts: Sequence[str]
    argv: Sequence[str]
    read: Sequence[str]
    env: Mapping[str, str]
    cwd: Path

    @property
    def given(self) -> Set[str]:
        """Numbers that the runbook has given the stage: settings, which it may well repeat."""
        return {found[1] for found in map(_ARGUMENT.fullmatch, [*self.argv, *self.env.values()]) if found}

    def files(self) -> List[Path]:
        """Files that its Pythons have read, or its scripts name."""
        known = {**self.env, **dict(pair for text in self.texts for pair in _SETS.findall(text))}
        named = list(dict.fromkeys(path for text in self.texts for path in self._named(text, known)))
        files = [*map(Path, self.read), *filter(os.path.isfile, named)]
        return list(islice(dict.fromkeys([*files, *(file for path in named for file in _inside(path))]), _MOST))

    def _named(self, text: str, known: Mapping[str, str]) -> Iterator[Path]:
        text = _QUOTES.sub("", text)
        gone = [os.path.abspath(os.path.join(self.cwd, _expanded(f, known))) for f in _GOES_TO.findall(text)]
        for word in _WORD.findall(text):
            word = _expanded(word, known)
            if "/" in word:
                yield from _matching(os.path.join(self.cwd, word))
            yield from (Path(folder, word) for folder in gone if word and os.path.isfile(os.path.join(folder, word)))


def _expanded(word: str, known: Mapping[str, str]) -> str:
    """A word of a script with its variables, as a path."""
    for _ in range(3):  # that stand in others
        word = _VARIABLE.sub(lambda match: known.get(match[1] or match[2], ""), word)
    return re.sub("^~(?=/|$)", known.get("HOME", "~"), _ADDRESS.sub("", word))


def _matching(pattern: str) -> Iterator[Path]:
    """The files and folders that a word of a script stands for."""
    for found in islice(glob.iglob(pattern), _MOST) if "\0" not in pattern else ():
        yield Path(os.path.abspath(found))


def _inside(folder: Path) -> Iterator[Path]:
    if folder.is_dir() and folder.parent != Path("/"):
        yield from (Path(entry.path) for _, entry in islice(walk(folder), _MOST))


def is_derived(files: Iterable[Path], places: Layout, before: Collection[str]) -> bool:
    """Whether one of them is what earlier stages of the run have left: an artifact of those `before`, or built."""
    return any(_relative(path, places.artifacts) in before or _is_built(path, places) for path in files)


def _is_built(path: Path, places: Layout) -> bool:
    inside = _relative(path, places.tree)
    return inside is not None and any(os.path.isfile(stage / inside) for stage in places.builds.glob("*"))


def _relative(path: Path, folder: Path) -> Optional[str]:
    try:
        return str(path.relative_to(folder))
    except ValueError:
        return None
