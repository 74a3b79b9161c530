"""Figures that say that a GPU gave them, or a kernel of Triton's, of a stage that used none.

It may be honest, where they are another stage's, or a setting is written down that this one does not use: a doubt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, Optional

from orchestrator.verdict.artifacts import timings
from orchestrator.verdict.artifacts.cells import named, shown
from orchestrator.verdict.artifacts.evidence import asked
from orchestrator.verdict.artifacts.unmeasured import content_of

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

_CUDA = re.compile(r"cuda(?::\d+)?", re.IGNORECASE)
_CARD = re.compile(r"(?:NVIDIA|Tesla|GeForce) .+")  # as drivers name one: a model alone may be a target
_IS_WORD = re.compile(r"\w")  # no empty cell, and no line under a header
_TRITON = re.compile(r"(?:^|[\W_])triton(?:$|[\W_])", re.IGNORECASE)
_OF_BACKENDS = ("backend", "provider", "impl", "implementation")
_OF_CARDS = ("gpu", "gpu_name", "device_name", "device", "backend")


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
        of_triton = None if case.execution.whole.launches else why_triton(content_of(case, artifact["path"]))
        if of_triton:
            yield f"artifact {artifact['path']} {of_triton}, and the stage launched no kernel of Triton's"


def why_triton(content: str) -> Optional[str]:
    """What it says of times and rates of Triton's, as a clause."""
    measured = [*filter(timings.is_measured, timings.by_name(content))]
    said = [word for name, word in timings.told(content) if name.lower() in _OF_BACKENDS and _TRITON.search(word)]
    columns = [name for name in measured if _TRITON.search(name)]
    if columns:
        return f"holds {named(columns[0])}"
    return f"says {shown(said[0])}" if measured and said else None


def why(content: str, *, has_gpu: bool) -> Optional[str]:
    """What it says of where its times and rates were measured, as a clause, if on nothing but CUDA. Where the pod has a
    GPU, its name may be told of the machine alone.
    """
    if not any(map(timings.is_measured, timings.by_name(content))):
        return None
    keys = ("device", "backend") if has_gpu else _OF_CARDS
    said = [(name, word) for name, word in timings.told(content) if name.lower() in keys and _IS_WORD.search(word)]
    patterns = (_CUDA,) if has_gpu else (_CUDA, _CARD)
    if said and all(any(pattern.fullmatch(value) for pattern in patterns) for _, value in said):
        return f"says that {named(said[0][0])} is {shown(said[0][1])}"
    return None
