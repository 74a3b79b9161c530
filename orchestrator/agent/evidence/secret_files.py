"""Keeps secret values out of the files that a stage leaves: logs are redacted, other files taken away and named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterable, List

from orchestrator.shared.files import Refused, open_inside, walk
from orchestrator.shared.redaction import Redactor


def redact_logs(folder: Path, redactor: Redactor) -> Dict[str, List[str]]:
    """Rewrite those files of a stage's own directory that hold a value; the names of the values, by file.

    These are the agent's: streams, the pytest report and the like. Nobody expects them as they were.
    """
    if not redactor:
        return {}
    found = {name: _names_in(folder, name, redactor) for name in sorted(name for name, _ in walk(folder))}
    held = {name: names for name, names in found.items() if names}
    for name in held:
        aside = folder / f".{os.getpid()}.redacted"
        with open_inside(folder, name) as f, aside.open("xb") as out:
            for piece in redactor.stream().copy(f):
                out.write(piece)
        aside.replace(folder / name)
    return held


def take_away(root: Path, names: Iterable[str], redactor: Redactor) -> Dict[str, str]:
    """Remove those of the files `names` below `root` whose content or path holds a value; why, as a clause, by file.

    A file that was delivered is never altered: it comes as the stage made it, or not at all.
    """
    removed: Dict[str, str] = {}
    for name in names if redactor else ():
        held = _names_in(root, name, redactor)
        if held or redactor.text(name) != name:
            (root / name).unlink()
            what = f"holds the value of {', '.join(held)}" if held else "has a secret value in its name"
            removed[name] = f"{what}: it was removed"
    return removed


def _names_in(root: Path, name: str, redactor: Redactor) -> List[str]:
    try:
        with open_inside(root, name) as f:
            return redactor.names_in(f)
    except (Refused, OSError):  # not a regular file, or gone: nothing of it is sent anyway
        return []
