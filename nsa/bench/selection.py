"""Choice of blocks, and attention to them, on every backend at each length S (forward)."""

from __future__ import annotations

from argparse import Namespace

import torch

from nsa.bench import options, rows
from nsa.bench.candidates import row, timings
from nsa.bench.kernels_cases import case_at, tensors
from nsa.bench.kernels_parts import least_work, prepare


@torch.no_grad()
def run(args: Namespace, shape: options.Shape, where: options.Where, length: int) -> list[rows.Row]:
    """The rows of one length, one for each operation and backend; those that cannot run are said."""
    case = case_at(shape, length)
    x = prepare(case, tensors(shape, where, length))
    work = least_work(case, x)
    return [
        row({"S": length, "operation": operation, "backend": backend}, timing, shape, where, work[operation][0])
        for operation in ("select", "selected")
        for backend, timing in timings(operation, case, x, args, where)
    ]


def main(argv: list[str]) -> int:
    """`python -m nsa.bench selection`."""
    _, found = options.by_length(argv, "selection", __doc__, run)
    print(rows.shown(found, ("S", "operation", "backend", "ms", "ms_iqr")))
    return 0
