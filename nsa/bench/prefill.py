"""The whole operation at each length S, each branch alone, and dense causal attention (SDPA) on the same tensors:
forward (with the gradient: `python -m nsa.bench crossover`).

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
from nsa.bench.cases import Case, Where, inputs
from nsa.bench.kernels_parts import for_sdpa
from nsa.bench.roofline import attention_work, clocks, pairs
from nsa.bench.timing import branch_columns, measure
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


@torch.no_grad()
def run(args: Namespace, case: Case, where: Where) -> list[rows.Row]:
    """The facts of one length."""
    x = inputs(case, where)
    q, k, v, gates = (x[name] for name in ("q", "k", "v", "gates"))
    timed = partial(measure, device=where.device, iters=args.iters, warmup=args.warmup)
    with routing.record() as recording:
        total = timed(partial(nsa_attention, q, k, v, gates, config=case.config))
    alone = {name: timed(call) for name, call in branches(q, k, v, case.config).items()}
    full = timed(partial(F.scaled_dot_product_attention, *for_sdpa(q, k, v), is_causal=True))
    count = pairs(case.tokens, case.config)
    count = case.batch * (count["compressed"] + count["selected"] + count["window"])
    work, _ = attention_work(count, case, q.nbytes + k.nbytes + v.nbytes, x["do"].nbytes)
    print(f"S={case.tokens}: {total.ms:.3f} ms, dense {full.ms:.3f} ms", flush=True)
    row = {
        **branch_columns(total, alone), **full.columns("ms_dense"), "speedup_over_dense": full.ms / total.ms,
        **clocks(total, where, work), **{f"route_{step}": " ".join(sorted(recording.backends(step))) for step in STEPS},
    }  # fmt: skip
    return [row]


def main(argv: list[str]) -> int:
    shown = "S ms_total cmp_pct sel_pct win_pct ms_dense speedup_over_dense"
    options.measured(options.by_length("prefill", __doc__).parse_args(argv), run, shown.split())
    return 0
