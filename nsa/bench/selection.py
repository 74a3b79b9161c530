"""Choice of blocks, and attention to them, on every backend at each length S (forward)."""

from __future__ import annotations

import argparse
import sys
from functools import partial

import torch
from torch import Tensor

from nsa import ops
from nsa.bench import options, rows
from nsa.bench.candidates import on_backends, row
from nsa.bench.roofline import Work, attention_work, pairs
from nsa.bench.tensors import Tensors
from nsa.bench.timing import measure


@torch.no_grad()
def run(shape: options.Shape, where: options.Where, length: int, iters: int, warmup: int) -> list[rows.Row]:
    """The rows of one length, one for each operation and backend; those that cannot run are said."""
    x, config = Tensors.random(shape, where, length), shape.config
    k_cmp, v_cmp = ops.compress(x.k, config), ops.compress(x.v, config)
    _, lse = ops.compressed_attention(x.q, k_cmp, v_cmp, config)
    chosen = ops.select_blocks(x.q, k_cmp, config, lse=lse)

    def select(backend: str) -> Tensor:
        return ops.select_blocks(x.q, k_cmp, config, lse=lse, backend=backend, strict=True)

    def selected(backend: str) -> Tensor:
        return ops.selected_attention(x.q, x.k, x.v, chosen, config, validate=False, backend=backend, strict=True)

    count = pairs(length, shape)
    scores = Work(x.q.nbytes + k_cmp.nbytes + chosen.nbytes, 2.0 * shape.batch * count["cmp"] * shape.heads * shape.dk)
    works = {"select": scores, "selected": attention_work(length, shape, where, count["sel"], length)}
    found = []
    for operation, call in (("select", select), ("selected", selected)):
        for backend, reason in on_backends(operation, call):
            if reason is not None:
                print(f"S={length} {operation} {backend}: unavailable: {reason}")
                continue
            timing = measure(partial(call, backend), where.device, iters=iters, warmup=warmup)
            facts: rows.Row = {"S": length, "operation": operation, "backend": backend}
            found.append(row(facts, timing, shape, where, works[operation]))
    return found


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = options.parser("selection", __doc__)
    options.add_shape(parser)
    options.add_where(parser)
    options.add_measure(parser)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """`python -m nsa.bench selection`."""
    args = _parse(argv)
    shape, where = options.shape_of(args), options.where_of(args)
    print(rows.headline(where.device, where.dtype), flush=True)
    found = [one for length in args.S_list for one in run(shape, where, length, args.iters, args.warmup)]
    rows.write(found, args.csv, args.jsonl)
    print(rows.shown(found, ("S", "operation", "backend", "ms", "ms_iqr")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
