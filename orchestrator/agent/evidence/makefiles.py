"""Recipes of Makefiles whose failures make is told to ignore, which `make -s` does without a word."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Iterator, NamedTuple, Pattern, Sequence

from orchestrator.shared.files import walk
from orchestrator.shared.stage_record import LostExitCode
from orchestrator.shared.text import plain

_IS_MAKEFILE = re.compile(r"(GNU)?[Mm]akefile.*|.*\.(mk|mak|make)")
_IGNORED = re.compile(r"^\t[ \t]*[@+]*-[@+\- \t]*(?P<recipe>(?:.*\\\n)*.*)$", re.MULTILINE)
_VARIABLE = re.compile(r"\$(?:\((?:[^()]|\([^()]*\))*\)|\{[^}]*\}|[^$({])")


class _Recipe(NamedTuple):
    """A recipe with a `-`, as it looks when make has put its variables in."""

    file: str
    line: int
    text: Pattern[str]


def ignored_by_make(failed: Sequence[LostExitCode], tree: Path) -> Iterator[LostExitCode]:
    """Those of the recipes that `failed` that a Makefile of the tree has a `-` before, each with its place there."""
    ignored = list(_ignored_recipes(tree)) if failed else []
    for entry in failed:
        for recipe in ignored:
            if recipe.text.fullmatch(entry["command"]):
                yield LostExitCode(
                    command=entry["command"],
                    program=entry["program"],
                    code=entry["code"],
                    line=recipe.line,
                    file=plain(recipe.file),
                    how="ignored",
                    ours=entry["ours"],
                )
                break


def _ignored_recipes(tree: Path) -> Iterator[_Recipe]:
    for name in (name for name, _ in walk(tree) if _IS_MAKEFILE.fullmatch(os.path.basename(name))):
        with contextlib.suppress(OSError):
            text = (tree / name).read_text(encoding="utf-8", errors="replace")
            for match in _IGNORED.finditer(text):
                parts = [re.escape(part.replace("$$", "$")) for part in _VARIABLE.split(match["recipe"].strip())]
                line = text.count("\n", 0, match.start()) + 1
                yield _Recipe(name, line, re.compile(".*".join(parts), re.DOTALL))
