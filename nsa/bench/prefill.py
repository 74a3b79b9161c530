"""The whole operation at each length S, each branch alone, and dense causal attention (SDPA) on the same tensors.

cmp is compression, compressed attention and the choice of blocks; sel is attention to blocks chosen before; win the
window.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import nsa_attention, ops, routing
from nsa.bench import options, rows
from nsa.bench.roofline import attention_work, clocks, pairs
from nsa.bench.tensors import Tensors
from nsa.bench.timing import Timing, measure


def branches(x: Tensors, shape: options.Shape) -> dict[str, Callable[[], object]]:
    """Each branch as a call of its own."""
    config = shape.config

    def compressed() -> Tensor:
        k_cmp, v_cmp = ops.compress(x.k, config), ops.compress(x.v, config)
        _, lse = ops.compressed_attention(x.q, k_cmp, v_cmp, config)
        return ops.select_blocks(x.q, k_cmp, config, lse=lse)

    chosen = compressed()
    return {
        "cmp": compressed,
        "sel": lambda: ops.selected_attention(x.q, x.k, x.v, chosen, config, validate=False),
        "win": lambda: ops.sliding_window_attention(x.q, x.k, x.v, config.w),
    }


def _forward_backward(call: Callable[[], Tensor], leaves: tuple[Tensor, ...], upstream: Tensor) -> None:
    torch.autograd.grad(call(), leaves, upstream)


def run(shape: options.Shape, where: options.Where, length: int, iters: int, warmup: int, backward: bool) -> rows.Row:
    """The row of one length."""
    x = Tensors.random(shape, where, length)
    timed = partial(measure, device=where.device, iters=iters, warmup=warmup)
    whole = partial(nsa_attention, x.q, x.k, x.v, x.gates, shape.config)
    q, k, v = x.for_sdpa(x.k, x.v)
    dense = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)
    with torch.no_grad():
        with routing.record() as recording:
            total = timed(whole)
        alone = {name: timed(call) for name, call in branches(x, shape).items()}
        full = timed(dense)
    work = attention_work(length, shape, where, sum(pairs(length, shape).values()), length)
    return {
        "S": length,
        **shape.columns(),
        **_times(total, alone, full),
        **(_backward(x, whole, (q, k, v), dense, timed) if backward else {}),
        **clocks(total, where, work),
        "iters": iters,
        "warmup": warmup,
        **{f"route_{step}": _route(recording, step) for step in ("compressed", "select", "selected", "window")},
        **rows.context(where.device, where.dtype),
    }


def _route(recording: routing.Recording, step: str) -> str:
    return " ".join(sorted(recording.backends(step))) or "dense"


def _times(total: Timing, alone: dict[str, Timing], full: Timing) -> rows.Row:
    together = sum(timing.ms for timing in alone.values())
    return {
        "ms_total": total.ms,
        "ms_total_iqr": total.iqr,
        "ms_total_samples": [*total.samples],
        **{f"ms_{name}": timing.ms for name, timing in alone.items()},
        **{f"ms_{name}_iqr": timing.iqr for name, timing in alone.items()},
        **{f"ms_{name}_samples": [*timing.samples] for name, timing in alone.items()},
        **{f"{name}_pct": 100 * timing.ms / together for name, timing in alone.items()},
        "branches_over_total": together / total.ms,
        "ms_dense": full.ms,
        "ms_dense_iqr": full.iqr,
        "ms_dense_samples": [*full.samples],
        "speedup_over_dense": full.ms / total.ms,
    }


def _backward(
    x: Tensors,
    whole: Callable[[], Tensor],
    dense_leaves: tuple[Tensor, Tensor, Tensor],
    dense: Callable[[], Tensor],
    timed: Callable[..., Timing],
) -> rows.Row:
    """Forward and backward together, sparse and dense."""
    leaves = (x.q, x.k, x.v, x.gates)
    for leaf in (*leaves, *dense_leaves):
        leaf.requires_grad_()
    sparse = timed(partial(_forward_backward, whole, leaves, torch.randn_like(whole())))
    full = timed(partial(_forward_backward, dense, dense_leaves, torch.randn_like(dense())))
    return {"ms_fwd_bwd": sparse.ms, "ms_fwd_bwd_iqr": sparse.iqr, "ms_dense_fwd_bwd": full.ms}


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = options.parser("prefill", __doc__)
    options.add_shape(parser)
    options.add_where(parser)
    options.add_measure(parser)
    parser.add_argument("--backward", action="store_true", help="time forward and backward together too")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """`python -m nsa.bench prefill`."""
    args = _parse(argv)
    shape, where = options.shape_of(args), options.where_of(args)
    print(rows.headline(where.device, where.dtype), flush=True)
    found = []
    for length in args.S_list:
        found.append(run(shape, where, length, args.iters, args.warmup, args.backward))
        print(f"S={length}: {found[-1]['ms_total']:.3f} ms, dense {found[-1]['ms_dense']:.3f} ms", flush=True)
    rows.write(found, args.csv, args.jsonl)
    backward = ("ms_fwd_bwd", "ms_dense_fwd_bwd") if args.backward else ()
    columns = ("S", "ms_total", "cmp_pct", "sel_pct", "win_pct", "ms_dense", "speedup_over_dense", *backward)
    print(rows.shown(found, columns))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
