"""Choice of blocks, and attention to them, on every backend at each length S (forward)."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

import torch

from nsa import routing
from nsa.bench import options, rows
from nsa.bench.cases import Case, Where, inputs
from nsa.bench.kernels_parts import Tensors, least_work, our_parts, prepare
from nsa.bench.roofline import clocks
from nsa.bench.timing import Timing, measure
from nsa.routing import registry


def timings(operation: str, case: Case, x: Tensors, args: Namespace, where: Where) -> Iterator[tuple[str, Timing]]:
    """The time of an operation on each backend that runs it; of those that cannot the reason is printed.

    x comes from `kernels_parts.prepare`.
    """
    for name in registry.REGISTRY:
        if not registry.implements(name, operation):
            continue
        call = partial(our_parts(case, x, name)[operation].call, x)
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


@torch.no_grad()
def run(args: Namespace, case: Case, where: Where) -> list[rows.Row]:
    """The facts of one length, of each operation and backend; of those that cannot run the reason is printed."""
    x = prepare(case, inputs(case, where))
    work = least_work(case, x)
    return [
        {"operation": operation, "backend": backend, **timing.columns(), **clocks(timing, where, work[operation][0])}
        for operation in ("select", "selected")
        for backend, timing in timings(operation, case, x, args, where)
    ]


def main(argv: list[str]) -> int:
    args = options.by_length("selection", __doc__).parse_args(argv)
    options.measured(args, run, ("S", "operation", "backend", "ms", "ms_iqr"))
    return 0
