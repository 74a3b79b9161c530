"""Window (--mode win) or compressed (--mode cmp) attention on every backend, FA-2 among them, against SDPA.

SDPA gets the same mask as a boolean matrix. A threshold is named only where rows of this run show it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import ops
from nsa.bench import options, rows
from nsa.bench.candidates import on_backends, row
from nsa.bench.roofline import attention_work, pairs
from nsa.bench.tensors import Tensors
from nsa.bench.timing import measure

OPERATIONS = {"win": "window", "cmp": "compressed"}


def visible(mode: str, length: int, shape: options.Shape, device: torch.device) -> Tensor:
    """The mask [S,keys] of a mode; a query without any key sees the first, so that SDPA is defined."""
    t = torch.arange(length, device=device)[:, None]
    if mode == "win":
        key = torch.arange(length, device=device)
        return (key <= t) & (key > t - shape.config.w)
    count = max(0, (length - shape.config.l) // shape.config.d + 1)
    last = torch.arange(count, device=device) * shape.config.d + shape.config.l - 1
    mask = last <= t
    mask[:, :1] = True
    return mask


@torch.no_grad()
def run(mode: str, shape: options.Shape, where: options.Where, length: int, iters: int, warmup: int) -> list[rows.Row]:
    """The rows of one length: SDPA, then each backend with its speed-up over it."""
    x, config = Tensors.random(shape, where, length), shape.config
    k, v = (x.k, x.v) if mode == "win" else (ops.compress(x.k, config), ops.compress(x.v, config))
    if k.shape[1] == 0:
        raise ValueError(f"S={length} has no compressed token; with --l {config.l} it needs {config.l}")
    operation = OPERATIONS[mode]

    def call(backend: str) -> object:
        if mode == "win":
            return ops.sliding_window_attention(x.q, k, v, config.w, backend=backend, strict=True)
        return ops.compressed_attention(x.q, k, v, config, backend=backend, strict=True)

    mask = visible(mode, length, shape, where.device)
    calls: dict[str, Callable[[], object]] = {
        "sdpa": partial(F.scaled_dot_product_attention, *x.for_sdpa(k, v), attn_mask=mask)
    }
    for backend, reason in on_backends(operation, call):
        if reason is None:
            calls[backend] = partial(call, backend)
        else:
            print(f"S={length} {operation} {backend}: unavailable: {reason}")
    timings = {name: measure(one, where.device, iters=iters, warmup=warmup) for name, one in calls.items()}
    work = attention_work(length, shape, where, pairs(length, shape)[mode], k.shape[1])
    return [
        row(
            {"S": length, "mode": mode, "backend": name, "speedup_over_sdpa": timings["sdpa"].ms / timing.ms},
            timing, shape, where, work,
        )
        for name, timing in timings.items()
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


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = options.parser("window", __doc__)
    options.add_shape(parser, dk=64, dv=64)
    options.add_where(parser)
    options.add_measure(parser, "128,256,512,1024,2048")
    parser.add_argument("--mode", choices=OPERATIONS, default="win", help="which branch")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """`python -m nsa.bench window`."""
    args = _parse(argv)
    shape, where = options.shape_of(args), options.where_of(args)
    print(rows.headline(where.device, where.dtype), flush=True)
    found = [one for length in args.S_list for one in run(args.mode, shape, where, length, args.iters, args.warmup)]
    rows.write(found, args.csv, args.jsonl)
    print(rows.shown(found, ("S", "mode", "backend", "ms", "ms_iqr", "speedup_over_sdpa")))
    print(threshold(found, args.mode))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
