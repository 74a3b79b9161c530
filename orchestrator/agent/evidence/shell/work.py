"""The work of a stage's shells: which programs did it, and where nothing ran that a script, or a make, is there for."""

from __future__ import annotations

import os
import re
import shutil
from itertools import chain
from pathlib import Path
from typing import Collection, Iterator, List, Tuple

from orchestrator.agent.evidence.programs import SHELL, inside, program_of, run_for_each, runs_python, words_of
from orchestrator.agent.evidence.shell.commands import SAYING, UNTIMED
from orchestrator.agent.evidence.shell.record import ShellRecord
from orchestrator.agent.evidence.shell.tree import Pipeline, Simple
from orchestrator.shared.text import plain

_CLOCK = re.compile(r"\bdate\b[^|;\n]*\+\S*%[sN]|\btime\b|\bSECONDS\b|\bEPOCH(?:REALTIME|SECONDS)\b")
_MAKES = frozenset(("make", "gmake"))
_OWN_SHELL = re.compile(rb"^\s*(?:(?:override|export)\s+)*SHELL\s*[:?+!]*=", re.MULTILINE)


def others(record: ShellRecord) -> List[str]:
    """The programs, and words of scripts, that may read clocks and are no Pythons, which tell themselves."""
    programs = [program_of(command.text) for _, command in record.work()]
    found = [program for program in programs if program not in UNTIMED and not runs_python(program)]
    return found + [match[0] for match in map(_CLOCK.search, record.texts) if match]


def inert(record: ShellRecord, tree: Path) -> List[str]:
    """The script of a stage in which no Python ran, where it is for Python alone: `[ -z "$CUDA" ] || python x.py`. What
    the scripts are for that it runs stands in these.
    """
    programs = list(_worked(record))
    if not programs or not all(runs_python(program) for _, program in programs):
        return []
    return [plain(inside(programs[0][0], tree)) if programs[0][0] else "its script"]


def ran_nothing(program: str, record: ShellRecord, tree: Path) -> Iterator[str]:
    """As a doubt, of a stage that is a `program`, and in which no Python ran: a make below which nothing ran, by `-t`,
    a variable that leaves its recipes empty, or recipes that only say something. A Makefile may have a shell of its
    own, of which nothing is recorded.
    """
    ran = {program for _, program in _worked(record, with_files=True)}
    programs = _MAKES.intersection([program]).union(ran)
    if programs and _MAKES.issuperset(programs) and shutil.which("bash") and not _has_own_shell(tree):
        yield f"{min(programs)} ran nothing that does more than to say something"


def _has_own_shell(tree: Path) -> bool:
    files = chain.from_iterable(map(tree.rglob, ("*akefile*", "*.mk")))
    return any(_OWN_SHELL.search(file.read_bytes()) for file in files if file.is_file())


def _worked(record: ShellRecord, *, with_files: bool = False) -> Iterator[Tuple[str, str]]:
    """The programs that do the work of the scripts, with the files of these."""
    work = list(record.work(with_files=with_files))
    scripts = {os.path.basename(file) for file, _ in work if file}
    return ((file, program) for file, command in work for program in _worked_by(command, scripts))


def _worked_by(command: Simple, scripts: Collection[str]) -> Iterator[str]:
    """The program that does a command's work, if it has any: what `find` and `xargs` run for each name, and not who
    gives xargs the names; not one of the `scripts` that are read beside it, nor `exec true`.
    """
    program, words = program_of(command.text), words_of(command.text)
    named = {os.path.basename(word.strip("'\"")) for word in words}
    program = program_of(run_for_each(program, words)) or program
    pipeline = command.parent
    last = pipeline.members[-1] if isinstance(pipeline, Pipeline) else command
    gives_names = last is not command and isinstance(last, Simple) and program_of(last.text) == "xargs"
    is_script = program in scripts or (SHELL.fullmatch(program) and not named.isdisjoint(scripts))
    if program not in SAYING and not (gives_names or is_script):
        yield program
