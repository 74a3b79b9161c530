"""The whole operation at each length S, each branch alone, and dense causal attention (SDPA) on the same tensors.

cmp is compression, compressed attention and the choice of blocks; sel is attention to blocks chosen before; win the
window.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import nsa_attention, ops, routing
from nsa.bench import options, rows
from nsa.bench.kernels_cases import case_at, tensors
from nsa.bench.kernels_parts import for_sdpa
from nsa.bench.roofline import attention_work, clocks, pairs
from nsa.bench.timing import Timing, branch_columns, measure
from nsa.config import NSAConfig

STEPS = ("compressed", "select", "selected", "window")
"""The operations whose routes a row names."""


def branches(q: Tensor, k: Tensor, v: Tensor, config: NSAConfig) -> dict[str, Callable[[], object]]:
    """Each branch as a call of its own."""

    def compressed() -> Tensor:
        k_cmp, v_cmp = ops.compress(k, config), ops.compress(v, config)
        _, lse = ops.compressed_attention(q, k_cmp, v_cmp, config)
        return ops.select_blocks(q, k_cmp, config, lse=lse)

    chosen = compressed()
    return {
        "cmp": compressed,
        "sel": lambda: ops.selected_attention(q, k, v, chosen, config, validate=False),
        "win": lambda: ops.sliding_window_attention(q, k, v, config.w),
    }


def _forward_backward(call: Callable[[], Tensor], leaves: tuple[Tensor, ...], upstream: Tensor) -> None:
    torch.autograd.grad(call(), leaves, upstream)


def run(args: Namespace, shape: options.Shape, where: options.Where, length: int) -> list[rows.Row]:
    """The row of one length."""
    x = tensors(shape, where, length)
    q, k, v, gates = (x[name] for name in ("q", "k", "v", "gates"))
    timed = partial(measure, device=where.device, iters=args.iters, warmup=args.warmup)
    whole = partial(nsa_attention, q, k, v, gates, shape.config)
    of_dense = for_sdpa(q, k, v)
    dense = partial(F.scaled_dot_product_attention, *of_dense, is_causal=True)
    with torch.no_grad():
        with routing.record() as recording:
            total = timed(whole)
        alone = {name: timed(call) for name, call in branches(q, k, v, shape.config).items()}
        full = timed(dense)
    count = pairs(length, shape.config)
    count = shape.batch * (count["compressed"] + count["selected"] + count["window"])
    work, _ = attention_work(count, case_at(shape, length), q.nbytes + k.nbytes + v.nbytes, x["do"].nbytes)
    print(f"S={length}: {total.ms:.3f} ms, dense {full.ms:.3f} ms", flush=True)
    row = {
        "S": length, **shape.columns(), **branch_columns(total, alone), **full.columns("ms_dense"),
        "speedup_over_dense": full.ms / total.ms,
        **(_backward((q, k, v, gates), whole, of_dense, dense, timed) if args.backward else {}),
        **clocks(total, where, work), "iters": args.iters, "warmup": args.warmup,
        **{f"route_{step}": " ".join(sorted(recording.backends(step))) or "dense" for step in STEPS},
        **rows.context(where.device, where.dtype),
    }  # fmt: skip
    return [row]


def _backward(
    leaves: tuple[Tensor, ...], whole: Callable[[], Tensor], dense_leaves: tuple[Tensor, ...],
    dense: Callable[[], Tensor], timed: Callable[..., Timing],
) -> rows.Row:  # fmt: skip
    """Forward and backward together, sparse and dense."""
    for leaf in (*leaves, *dense_leaves):
        leaf.requires_grad_()
    sparse = timed(partial(_forward_backward, whole, leaves, torch.randn_like(whole())))
    full = timed(partial(_forward_backward, dense, dense_leaves, torch.randn_like(dense())))
    return {"ms_fwd_bwd": sparse.ms, "ms_fwd_bwd_iqr": sparse.iqr, "ms_dense_fwd_bwd": full.ms}


def main(argv: list[str]) -> int:
    more = {"--backward": {"action": "store_true", "help": "time forward and backward together too"}}
    args, found = options.by_length(argv, "prefill", __doc__, run, more)
    backward = ("ms_fwd_bwd", "ms_dense_fwd_bwd") if args.backward else ()
    columns = ("S", "ms_total", "cmp_pct", "sel_pct", "win_pct", "ms_dense", "speedup_over_dense", *backward)
    print(rows.shown(found, columns))
    return 0
