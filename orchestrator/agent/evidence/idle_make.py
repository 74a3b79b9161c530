"""A make below which nothing ran: `make -t`, recipes that a variable leaves empty, or that only say something."""

from __future__ import annotations

import re
import shutil
from itertools import chain
from pathlib import Path
from typing import Collection, Iterator

_MAKES = frozenset(("make", "gmake"))
_OWN_SHELL = re.compile(rb"^\s*(?:(?:override|export)\s+)*SHELL\s*[:?+!]*=", re.MULTILINE)


def ran_nothing(program: str, ran: Collection[str], tree: Path) -> Iterator[str]:
    """As a doubt, of a stage that is a `program`, and in which no Python ran: what `ran` in all of its shells. A
    Makefile may have a shell of its own, of which nothing is recorded.
    """
    programs = _MAKES.intersection([program]).union(ran)
    if programs and _MAKES.issuperset(programs) and shutil.which("bash") and not _has_own_shell(tree):
        yield f"{min(programs)} ran nothing that does more than to say something"


def _has_own_shell(tree: Path) -> bool:
    files = chain.from_iterable(map(tree.rglob, ("*akefile*", "*.mk")))
    return any(_OWN_SHELL.search(file.read_bytes()) for file in files if file.is_file())
