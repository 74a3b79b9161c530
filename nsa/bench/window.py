"""Window (--mode win) or compressed (--mode cmp) attention on every backend, FA-2 among them, against SDPA.

SDPA gets the same mask as a boolean matrix. A threshold is named only where rows of this run show it.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa.bench import options, rows
from nsa.bench.cases import Case, Where, inputs
from nsa.bench.kernels_parts import for_sdpa, least_work, prepare
from nsa.bench.roofline import clocks
from nsa.bench.selection import timings
from nsa.bench.timing import measure
from nsa.blocks import num_compressed

OPERATIONS = {"win": "window", "cmp": "compressed"}


def visible(mode: str, case: Case, device: torch.device) -> Tensor:
    """The mask [S,keys] of a mode; a query without any key sees the first, so that SDPA is defined."""
    length, config = case.tokens, case.config
    t = torch.arange(length, device=device)[:, None]
    if mode == "win":
        key = torch.arange(length, device=device)
        return (key <= t) & (key > t - config.w)
    count = num_compressed(length, config)
    last = torch.arange(count, device=device) * config.d + config.l - 1
    mask = last <= t
    mask[:, :1] = True
    return mask


@torch.no_grad()
def run(args: Namespace, case: Case, where: Where) -> list[rows.Row]:
    """The facts of one length: SDPA's, then each backend's with its speed-up over it."""
    mode, least = args.mode, case.config.l
    if mode == "cmp" and case.tokens < least:
        raise ValueError(f"S={case.tokens} has no compressed token; with --l {least} it needs {least}")
    x, operation = prepare(case, inputs(case, where), "torch"), OPERATIONS[mode]  # not timed: compile nothing
    q, k, v = (x[name] for name in (("q", "k", "v") if mode == "win" else ("q", "k_cmp", "v_cmp")))
    mask = visible(mode, case, where.device)
    sdpa = partial(F.scaled_dot_product_attention, *for_sdpa(q, k, v), attn_mask=mask)
    found = {"sdpa": measure(sdpa, where.device, iters=args.iters, warmup=args.warmup)}
    found |= timings(operation, case, x, args, where)
    work, _ = least_work(case, x)[operation]
    return [
        {
            "mode": mode, "backend": name, "speedup_over_sdpa": found["sdpa"].ms / timing.ms, **timing.columns(),
            **clocks(timing, where, work),
        }
        for name, timing in found.items()
    ]  # fmt: skip


def threshold(found: Sequence[rows.Row], mode: str) -> str:
    """What the rows say about NSA_FA2_MIN_LEN_*: the length from which FA-2 was faster than SDPA at every S."""
    measured = sorted((int(one["S"]), float(one["speedup_over_sdpa"])) for one in found if one["backend"] == "fa2")
    if not measured:
        return "FA-2: not measured here, so no threshold"
    slower = [length for length, speedup in measured if speedup <= 1]
    faster = [length for length, _ in measured if not slower or length > slower[-1]]
    if not faster:
        return f"FA-2: slower than SDPA at S={slower[-1]}, the longest, so no threshold"
    return f"FA-2: faster than SDPA at every S from {faster[0]} on: NSA_FA2_MIN_LEN_{mode.upper()}={faster[0]}"


def main(argv: list[str]) -> int:
    to = options.by_length("window", __doc__, "128,256,512,1024,2048", dk=64, dv=64)
    to.add_argument("--mode", choices=OPERATIONS, default="win", help="which branch")
    args = to.parse_args(argv)
    found = options.measured(args, run, ("S", "mode", "backend", "ms", "ms_iqr", "speedup_over_sdpa"))
    print(threshold(found, args.mode))
    return 0
