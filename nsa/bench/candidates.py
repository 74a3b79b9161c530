"""The same call on every backend that can run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nsa import routing
from nsa.bench import rows
from nsa.bench.options import Shape, Where
from nsa.bench.roofline import Work, clocks
from nsa.bench.timing import Timing
from nsa.routing import registry


def usable(operation: str, length: int, call: Callable[[str], object]) -> Iterator[str]:
    """The backends that run `call(backend)`; of those that cannot the reason is printed.

    `call` must be strict: it runs once for each backend, and a `routing.RoutingError` is the reason.
    """
    for name in registry.REGISTRY:
        if not registry.implements(name, operation):
            continue
        reason = registry.missing(name) or _interpreted(name) or _refused(name, call)
        if reason is None:
            yield name
        else:
            print(f"S={length} {operation} {name}: unavailable: {reason}")


def _interpreted(name: str) -> str | None:
    return "its kernels would be interpreted, which is no measurement" if registry.interpreted(name) else None


def _refused(name: str, call: Callable[[str], object]) -> str | None:
    try:
        call(name)
    except routing.RoutingError as error:
        return str(error)
    return None


def row(facts: rows.Row, timing: Timing, shape: Shape, where: Where, work: Work) -> rows.Row:
    """The row of one candidate: `facts` first, then sizes, times and context."""
    return {
        **facts, **timing.columns(), **shape.columns(), **clocks(timing, where, work), "iters": len(timing.wall),
        **rows.context(where.device, where.dtype),
    }  # fmt: skip
