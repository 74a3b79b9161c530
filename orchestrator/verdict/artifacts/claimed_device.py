"""Figures that say that a GPU gave them, of a stage that used none.

It may be honest, where they are another stage's, or a setting is written down that this one does not use: a doubt.
"""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Mapping, Optional

from orchestrator.verdict.artifacts import timings
from orchestrator.verdict.artifacts.cells import named, shown
from orchestrator.verdict.artifacts.evidence import asked
from orchestrator.verdict.artifacts.unmeasured import content_of

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

_CUDA = re.compile(r"cuda(?::\d+)?", re.IGNORECASE)
_CARD = re.compile(r"(?:NVIDIA|Tesla|GeForce) .+")  # as drivers name one: a model alone may be a target
_OF_CARDS = ("gpu", "gpu_name", "device_name", "device")


def doubts(case: Case) -> Iterator[str]:
    """Of tables and JSON, also where they are asked for as text; what a stage takes from those that it needs may be
    theirs.
    """
    if case.evidence["used_cuda"] is not False or case.stage["needs"]:
        return
    for artifact in asked(case):
        said = why(content_of(case, artifact["path"]), has_gpu=case.run.devices != frozenset())
        if said:
            yield f"artifact {artifact['path']} {said}, and the stage used no CUDA"


def why(content: str, *, has_gpu: bool) -> Optional[str]:
    """What it says of where its times and rates were measured, as a clause, if on nothing but CUDA. Where the pod has a
    GPU, its name may be told of the machine alone.
    """
    if not any(map(timings.is_measured, timings.by_name(content))):
        return None
    keys = ("device",) if has_gpu else _OF_CARDS
    said = [(key, row[key]) for row in _rows(content) for key in keys if isinstance(row.get(key), str) and row[key]]
    patterns = (_CUDA,) if has_gpu else (_CUDA, _CARD)
    if said and all(any(pattern.fullmatch(value) for pattern in patterns) for _, value in said):
        return f"says that {named(said[0][0])} is {shown(said[0][1])}"
    return None


def _rows(content: str) -> Iterable[Mapping[str, Any]]:
    """Those of a table, or of lines of JSON; or the objects of JSON, at any depth."""
    try:
        return list(_objects(json.loads(content)))
    except (ValueError, RecursionError):
        return _of_lines(content.splitlines())


def _objects(found: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(found, dict):
        yield found
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    for each in inside:
        yield from _objects(each)


def _of_lines(lines: List[str]) -> List[Mapping[str, Any]]:
    try:
        if lines and lines[0].startswith("{"):
            return [row for row in map(json.loads, filter(None, lines)) if isinstance(row, dict)]
        return list(csv.DictReader(lines))
    except (ValueError, RecursionError, csv.Error):
        return []
