"""The same operation on every backend that can run it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

from nsa import routing
from nsa.bench import rows
from nsa.bench.kernels_cases import Case
from nsa.bench.kernels_parts import Tensors, our_parts
from nsa.bench.options import Shape, Where
from nsa.bench.roofline import Work, clocks
from nsa.bench.timing import Timing, measure
from nsa.routing import registry


def timings(operation: str, case: Case, x: Tensors, args: Namespace, where: Where) -> Iterator[tuple[str, Timing]]:
    """The time of an operation on each backend that runs it; of those that cannot the reason is printed.

    x comes from `kernels_parts.prepare`.
    """
    for name in registry.REGISTRY:
        if not registry.implements(name, operation):
            continue
        part = next(part for part in our_parts(case, x, name) if part.part == operation)
        call = partial(part.call, x)
        reason = registry.missing(name) or _refused(name, call)
        if reason is None:
            yield name, measure(call, where.device, iters=args.iters, warmup=args.warmup)
        else:
            print(f"S={case.tokens} {operation} {name}: unavailable: {reason}")


def _refused(name: str, call: Callable[[], object]) -> str | None:
    if registry.interpreted(name):
        return "its kernels would be interpreted, which is no measurement"
    try:
        call()
    except routing.RoutingError as error:
        return str(error)
    return None


def row(facts: rows.Row, timing: Timing, shape: Shape, where: Where, work: Work) -> rows.Row:
    """The row of one candidate: `facts` first, then sizes, times and context."""
    return {
        **facts, **timing.columns(), **shape.columns(), **clocks(timing, where, work), "iters": len(timing.wall),
        **rows.context(where.device, where.dtype),
    }  # fmt: skip
