"""A pytest that ran where the agent could not see it: its closing line in a stage's output, and no session of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, Iterable, Iterator, List

from orchestrator.agent.injected.runners.other_runners import RUNNER
from orchestrator.agent.injected.stage import FILE
from orchestrator.agent.layout import Layout
from orchestrator.shared.files import Refused, open_inside, text_inside, walk
from orchestrator.shared.text import plain
from orchestrator.verdict.case import SESSIONS

_OUTCOME = r"\d+ (?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun|subtests passed)"
_CLOSING = re.compile(rf"(?:=+ )?{_OUTCOME}(?:, {_OUTCOME})* in (?P<seconds>\d+\.\d\d)s(?: \([\d:, days]+\))?(?: =+)?")
_HINT = re.compile(rb"\d (?:passed|failed|error|skipped|xfailed|xpassed)")
_LONGEST_LINE = 1 << 16
_MOST_BYTES = 16 << 20
_MOST_NAMED = 10


def escaped(places: Layout, stage: str, seconds: float, committed: Iterable[str]) -> List[str]:
    """Closing lines that no session of the stage explains.

    Those that an older file has as well, of the commit or of an earlier stage, were only shown; so were those of
    sessions that took longer than the stage.
    """
    folder = places.stage(stage)
    found: Dict[str, None] = {}
    for stream in ("stdout", "stderr"):
        found.update(dict.fromkeys(_closing_lines(folder, stream, seconds)))
    sessions = sum(not name.startswith(RUNNER) for name, _ in walk(folder / SESSIONS))
    if len(found) <= sessions:
        return []
    old = _lines_of(places, stage, committed, set(found))
    new = [line for line in found if line not in old]
    return new[:_MOST_NAMED] if len(new) > sessions else []


def _closing_lines(root: Path, name: str, most_seconds: float = float("inf")) -> Iterator[str]:
    try:
        with open_inside(root, name) as f:
            for line in iter(lambda: f.readline(_LONGEST_LINE), b""):
                text = plain(line.decode("utf-8", "replace")) if _HINT.search(line) else ""
                match = _CLOSING.fullmatch(text)
                if match and float(match["seconds"]) <= most_seconds:
                    yield text
    except (OSError, Refused):
        return


def _lines_of(places: Layout, stage: str, committed: Iterable[str], wanted: "set[str]") -> "set[str]":
    """Those of the `wanted` lines that files hold which were there before the stage."""
    began = os.stat(places.injected / FILE).st_mtime_ns
    own = places.tree.relative_to(places.run_dir).as_posix()
    earlier = [f"stages/{name}" for name, _ in walk(places.run_dir / "stages") if not name.startswith(f"{stage}/")]
    made = [f"artifacts/{name}" for name, entry in walk(places.artifacts) if entry.stat().st_ctime_ns < began]
    found: "set[str]" = set()
    for name in (*earlier, *made, *(f"{own}/{path}" for path in committed)):
        if wanted <= found:
            break
        found |= wanted & set(_any_lines(places.run_dir, name))
    return found


def _any_lines(root: Path, name: str) -> Iterator[str]:
    """The closing lines in a file, however they are quoted or indented there."""
    for match in _CLOSING.finditer(text_inside(root, name, _MOST_BYTES)):
        yield plain(match.group())
