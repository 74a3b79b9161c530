"""Whether the routes that tests recorded are those that their stage owes, on a device that the pod has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Mapping

# Op -> route (`backend@device`) -> the number of passed tests that recorded it.
Routes = Mapping[str, Mapping[str, int]]

_ARCHITECTURE = re.compile(r"cuda:sm_\d+")


def devices(plan: Mapping[str, Any]) -> frozenset[str] | None:
    """The CUDA devices of the plan's pod, as routes name them; None if they are not known."""
    if not plan["promises"].get("cuda"):
        return frozenset()
    capabilities = [gpu.get("compute_cap") for gpu in plan["facts"].get("gpus", ())]
    if not capabilities or not all(capabilities):
        return None
    return frozenset("cuda:sm_" + str(capability).replace(".", "") for capability in capabilities)


def problems(stage: Mapping[str, Any], taken: Routes, known: Collection[str] | None) -> Iterator[str]:
    """What is wrong: each op took its backend in some passed test and no other in any; a CUDA stage ran on CUDA
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
            wrong = _wrong_device(route.partition("@")[2], bool(stage.get("cuda")), known)
            if wrong:
                yield f"route.{op} was {route}, {wrong}"


def _wrong_device(where: str, cuda: bool, known: Collection[str] | None) -> str | None:
    if not where:
        return "expected backend@device"
    if cuda and (not where.startswith("cuda") or "interpreted" in where):
        return "expected CUDA without the interpreter"
    if where.startswith("cuda") and known is not None and not known:
        return "but the pod has no CUDA GPU"
    if known and _ARCHITECTURE.fullmatch(where) and where not in known:
        return f"but the pod has {', '.join(sorted(known))}"
    return None
