"""Whether the routes that tests recorded are those that their stage owes, on a device that the pod has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Collection, Dict, FrozenSet, Iterator, Mapping, Optional

from orchestrator.shared.plan import Stage
from orchestrator.shared.text import plain

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

Asked = Dict[str, str]
"""Operation -> backend."""
# Operation -> route (`backend@device`) -> the number of passed tests that recorded it.
Routes = Mapping[str, Mapping[str, int]]

_ARCHITECTURE = re.compile(r"cuda:sm_\d+")


def devices(plan: Mapping[str, Any]) -> Optional[FrozenSet[str]]:
    """The CUDA devices of the plan's pod, as routes name them; None if they are not known."""
    if not plan["promises"]["cuda"]:
        return frozenset()
    capabilities = [gpu.get("compute_cap") for gpu in plan["facts"].get("gpus", ())]
    if not capabilities or not all(capabilities):
        return None
    return frozenset("cuda:sm_" + str(capability).replace(".", "") for capability in capabilities)


def taken(case: Case) -> Dict[str, Dict[str, int]]:
    """By operation and route, the number of passed tests that recorded it."""
    found: Dict[str, Dict[str, int]] = {}
    for test in case.session.with_outcome("passed"):
        for name, values in test.routes.items():
            counts = found.setdefault(plain(name[len("route.") :], 80), {})
            for value in {plain(value, 80) for value in values}:
                counts[value] = counts.get(value, 0) + 1
    return found


def problems(stage: Stage, taken: Routes, known: Optional[Collection[str]]) -> Iterator[str]:
    """What is wrong: each operation took its backend in some passed test and no other in any; a CUDA stage ran on CUDA
    only; what ran on CUDA ran on a device of the pod, where those are `known`.
    """
    for op, backend in (stage["expect"].get("routes") or {}).items():
        if op not in taken:
            yield f"no passed test recorded route.{op}, expected {backend}"
        for route in taken.get(op, ()):
            if route.partition("@")[0] != backend:
                yield f"route.{op} was {route}, expected {backend}"
    for op, counts in taken.items():
        for route in counts:
            wrong = _wrong_device(route.partition("@")[2], stage["cuda"], known)
            if wrong:
                yield f"route.{op} was {route}, {wrong}"


def _wrong_device(where: str, cuda: bool, known: Optional[Collection[str]]) -> Optional[str]:
    if not where:
        return "expected backend@device"
    if cuda and (not where.startswith("cuda") or "interpreted" in where):
        return "expected CUDA without the interpreter"
    if where.startswith("cuda") and known is not None and not known:
        return "but the pod has no CUDA GPU"
    if known and _ARCHITECTURE.fullmatch(where) and where not in known:
        return f"but the pod has {', '.join(sorted(known))}"
    return None
