"""Choice of blocks, and attention to them, on every backend at each length S (forward)."""

from __future__ import annotations

from argparse import Namespace

import torch
from torch import Tensor

from nsa import ops
from nsa.bench import options, rows
from nsa.bench.candidates import row, timings
from nsa.bench.kernels_cases import tensors
from nsa.bench.roofline import Work, attention_work, pairs


@torch.no_grad()
def run(args: Namespace, shape: options.Shape, where: options.Where, length: int) -> list[rows.Row]:
    """The rows of one length, one for each operation and backend; those that cannot run are said."""
    x, config = tensors(shape, where, length), shape.config
    q, k, v = x["q"], x["k"], x["v"]
    k_cmp, v_cmp = ops.compress(k, config), ops.compress(v, config)
    _, lse = ops.compressed_attention(q, k_cmp, v_cmp, config)
    chosen = ops.select_blocks(q, k_cmp, config, lse=lse)

    def select(backend: str) -> Tensor:
        return ops.select_blocks(q, k_cmp, config, lse=lse, backend=backend, strict=True)

    def selected(backend: str) -> Tensor:
        return ops.selected_attention(q, k, v, chosen, config, validate=False, backend=backend, strict=True)

    count = {name: shape.batch * number for name, number in pairs(length, config).items()}
    scores = Work(q.nbytes + k_cmp.nbytes + chosen.nbytes, 2.0 * count["compressed"] * shape.heads * shape.dk)
    selected_work, _ = attention_work(count["selected"], shape, q.nbytes + k.nbytes + v.nbytes, x["do"].nbytes)
    works = {"select": scores, "selected": selected_work}
    found = []
    for operation, call in (("select", select), ("selected", selected)):
        for backend, timing in timings(operation, length, call, args, where):
            facts: rows.Row = {"S": length, "operation": operation, "backend": backend}
            found.append(row(facts, timing, shape, where, works[operation]))
    return found


def main(argv: list[str]) -> int:
    """`python -m nsa.bench selection`."""
    _, found = options.by_length(argv, "selection", __doc__, run)
    print(rows.shown(found, ("S", "operation", "backend", "ms", "ms_iqr")))
    return 0
