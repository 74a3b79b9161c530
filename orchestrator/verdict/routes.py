"""Whether the routes that tests recorded are those that their stage owes, were seen, and are on the pod's devices."""

from __future__ import annotations

import re
from typing import (
    TYPE_CHECKING,
    Any,
    Collection,
    Dict,
    FrozenSet,
    Iterator,
    List,
    Mapping,
    NewType,
    Optional,
    TypedDict,
    Union,
)

from orchestrator.shared.schema import RULES
from orchestrator.shared.text import plain
from orchestrator.verdict import execution
from orchestrator.verdict.outcomes import Test
from orchestrator.verdict.tests import Pattern

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case


Backend = NewType("Backend", str)
RULES[Backend] = lambda name: None if name else "expected a backend, got none"


class _Backend(TypedDict):
    backend: Backend


class Owed(_Backend, total=False):
    """A backend, owed by those passed tests whose ids match `tests` (at least one must), with launches of `kernels`."""

    tests: Pattern
    kernels: Pattern


Asked = Dict[str, Union[Backend, Owed]]
"""Operation -> backend, which every passed test owes; or what is owed by which of them."""
Routes = Mapping[str, Mapping[str, int]]
"""Operation -> route (`backend@device`) -> the number of passed tests."""

_ARCHITECTURE = re.compile(r"cuda:sm_\d+")
_TRITON = "triton"


def devices(plan: Mapping[str, Any]) -> Optional[FrozenSet[str]]:
    """The CUDA devices of the plan's pod, as routes name them; None if they are not known."""
    if not plan["promises"]["cuda"]:
        return frozenset()
    capabilities = [gpu.get("compute_cap") for gpu in plan["facts"].get("gpus", ())]
    if not capabilities or not all(capabilities):
        return None
    return frozenset("cuda:sm_" + str(capability).replace(".", "") for capability in capabilities)


def taken(case: Case) -> Dict[str, Dict[str, int]]:
    """By operation and route (`backend@device`), the number of passed tests that recorded it, and were seen to."""
    found: Dict[str, Dict[str, int]] = {}
    for test in case.session.with_outcome("passed"):
        for name in test.routes:
            operation = _operation(name)
            for route in _recorded(test, operation):
                if _unseen(case, test, route) is None:
                    counts = found.setdefault(operation, {})
                    counts[route] = counts.get(route, 0) + 1
    return found


def at_their_word(routes: Routes) -> List[str]:
    """The operations of which some routes are only what tests say: nothing can be seen of work on the CPU."""
    return [op for op, counts in routes.items() if any(_device(route).startswith("cpu") for route in counts)]


def problems(case: Case) -> Iterator[str]:
    """What is wrong: a test that owes a backend took another, or none, or was not seen to take it; a CUDA stage ran
    elsewhere; what ran on CUDA ran on no device of the pod, where those are known.
    """
    passed = case.session.with_outcome("passed")
    owed = {op: _full(given) for op, given in (case.expect.get("routes") or {}).items()}
    for op, one in owed.items():
        yield from _of_format_1(op, one, passed) if case.run.format == 1 else _not_recorded(op, one, passed)
    for test in passed:
        for name in test.routes:
            for route in _recorded(test, _operation(name)):
                wrong = _wrong_device(_device(route), execution.is_for_cuda(case.stage), case.run.devices)
                if wrong:
                    yield f"{plain(name, 80)} was {route}, {wrong}"
    for op, one in owed.items():
        yield from _not_seen(case, op, one, passed)


def _full(given: Union[Backend, Owed]) -> Owed:
    return given if isinstance(given, dict) else {"backend": given}


def _owing(owed: Owed, passed: List[Test]) -> List[Test]:
    return [test for test in passed if re.search(owed.get("tests", ""), test.id)]


def _not_recorded(op: str, owed: Owed, passed: List[Test]) -> Iterator[str]:
    backend, owing = owed["backend"], _owing(owed, passed)
    silent = [test for test in owing if not _recorded(test, op)]
    if len(silent) == len(owing):
        which = f" that matches {owed['tests']!r}" if "tests" in owed else ""
        yield f"no passed test{which} recorded route.{op}, expected {backend}"
    for test in owing:
        for route in _recorded(test, op):
            if route.partition("@")[0] != backend:
                yield f"route.{op} was {route}, expected {backend} ({test.id})"
    if silent:
        more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
        yield f"{silent[0].id} passed and recorded no route.{op}, expected {backend}{more}"


def _not_seen(case: Case, op: str, owed: Owed, passed: List[Test]) -> Iterator[str]:
    for test in _owing(owed, passed):
        for route in _recorded(test, op):
            unseen = _unseen(case, test, route) or _without_kernel(case, test, route, owed.get("kernels"))
            if unseen:
                yield f"route.{op} was {route} by its own account, but {test.id} {unseen}"


def _of_format_1(op: str, owed: Owed, passed: List[Test]) -> Iterator[str]:
    """It was enough that some passed test took the backend, and none another."""
    backend = owed["backend"]
    routes = [route for test in passed for route in _recorded(test, op)]
    if not routes:
        yield f"no passed test recorded route.{op}, expected {backend}"
    for route in routes:
        if route.partition("@")[0] != backend:
            yield f"route.{op} was {route}, expected {backend}"


def _unseen(case: Case, test: Test, route: str) -> Optional[str]:
    """Why a route on CUDA does not count, as a clause; work on the CPU leaves nothing to be seen."""
    device = _device(route)
    if case.run.format == 1 or not device.startswith("cuda"):
        return None
    work = case.execution.of(test.id)
    if route.partition("@")[0] == _TRITON:
        seen = bool(work.kernels(_observable(device)))
        return None if seen else "launched no kernel of Triton's on the GPU"
    return None if work.on_cuda else "did nothing on the GPU"


def _without_kernel(case: Case, test: Test, route: str, pattern: Optional[str]) -> Optional[str]:
    if pattern is None:
        return None
    where = _observable(_device(route))
    launched = case.execution.of(test.id).kernels(where)
    return (
        None if any(re.search(pattern, name) for name in launched) else f"launched no kernel that matches {pattern!r}"
    )


def _observable(device: str) -> str:
    """The device as launches name it: they know its number, not its architecture."""
    return "cuda" if _ARCHITECTURE.fullmatch(device) else device


def _operation(name: str) -> str:
    return plain(name[len("route.") :], 80)


def _recorded(test: Test, operation: str) -> List[str]:
    """The distinct routes of an operation that a test recorded."""
    names = [name for name in test.routes if _operation(name) == operation]
    return list(dict.fromkeys(plain(value, 80) for name in names for value in test.routes[name]))


def _device(route: str) -> str:
    return route.partition("@")[2]


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
