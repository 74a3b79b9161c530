"""The same call on every backend that can run it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

from nsa import routing
from nsa.bench import rows
from nsa.bench.options import Shape, Where
from nsa.bench.roofline import Work, clocks
from nsa.bench.timing import Timing, measure
from nsa.routing import registry


def timings(
    operation: str, length: int, call: Callable[[str], object], args: Namespace, where: Where
) -> Iterator[tuple[str, Timing]]:
    """The time of `call(backend)` on each backend that runs it; of those that cannot the reason is printed.

    `call` must be strict: it runs once before, and a `routing.RoutingError` is the reason.
    """
    for name in registry.REGISTRY:
        if not registry.implements(name, operation):
            continue
        reason = registry.missing(name) or _refused(name, call)
        if reason is None:
            yield name, measure(partial(call, name), where.device, iters=args.iters, warmup=args.warmup)
        else:
            print(f"S={length} {operation} {name}: unavailable: {reason}")


def _refused(name: str, call: Callable[[str], object]) -> str | None:
    if registry.interpreted(name):
        return "its kernels would be interpreted, which is no measurement"
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
