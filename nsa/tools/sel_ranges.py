"""`python -m nsa.sel_ranges`: a sample of the token ranges that the selection chooses, one JSON line for each.

Each line holds the query's position `t`, the KV head, the chosen `ranges` (half-open, end at most t+1), the key rows
that the query reads in all three branches, and how many tokens of the query's own past the ranges cover.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nsa import NSAConfig, blocks, ops, routing


def walk(noise: Tensor, keep: float, block: int = 256) -> Tensor:
    """The stationary sequence x_t = keep * x_{t-1} + sqrt(1 - keep^2) * noise_t along axis 1, x_0 = noise_0: neighbours
    that resemble each other, of unit variance where noise is.

    Blocks of the sequence are products with the matrix of powers of `keep`; each block continues the one before.
    """
    steps = torch.arange(block, device=noise.device, dtype=torch.float64)
    powers = torch.where(steps[:, None] >= steps, keep ** (steps[:, None] - steps).clamp(min=0), 0.0).to(noise.dtype)
    decay = (keep ** (steps + 1)).to(noise.dtype)
    scaled = noise * (1 - keep**2) ** 0.5
    scaled[:, 0] = noise[:, 0]
    out, last = torch.empty_like(noise), torch.zeros_like(noise[:, 0])
    for first in range(0, noise.shape[1], block):
        part = scaled[:, first : first + block]
        n = part.shape[1]
        fresh = torch.einsum("ij,bjhd->bihd", powers[:n, :n], part)
        out[:, first : first + n] = fresh + decay[:n, None, None] * last[:, None]
        last = out[:, first + n - 1]
    return out


def sample(
    config: NSAConfig, tokens: int, rows: int, *, kv_heads: int, group_size: int, dk: int, correlation: float, seed: int
) -> Iterator[dict[str, Any]]:
    """Lines for `rows` queries spread over a sequence of `tokens`."""
    random = torch.Generator().manual_seed(seed)
    heads = kv_heads * group_size, kv_heads
    q, k = (walk(torch.randn(1, tokens, count, dk, generator=random), correlation) for count in heads)
    with routing.record() as recording:
        indices = ops.select_blocks(q, ops.compress(k, config), config)
    route = str(recording.of("select")[-1])
    ranges = blocks.indices_to_ranges(indices, blocks.token_positions(1, tokens), config)
    for t in sorted({(i + 1) * tokens // rows - 1 for i in range(rows)}):
        for head in range(kv_heads):
            chosen = [pair for pair in ranges[0, t, head].tolist() if pair[1] > pair[0]]
            yield {
                "t": t,
                "kv_head": head,
                "ranges": chosen,
                "covered": sum(end - start for start, end in chosen),
                "reads_expected": blocks.reads_expected(t, config, indices[0, t, head].tolist()),
                "route": route,
            }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the lines; 2 where an argument has no meaning."""
    parser = argparse.ArgumentParser(prog="python -m nsa.sel_ranges", description=__doc__)
    for name, default in (("S", 4096), ("rows", 16), ("groups", 2), ("heads", 8), ("dk", 64), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--correlation", type=float, default=0.98, help="of neighbouring tokens; 0: independent")
    asked = parser.parse_args(argv)
    sizes = min(asked.heads, asked.groups, asked.dk) >= 1 and asked.heads % asked.groups == 0
    if not (sizes and 1 <= asked.rows <= asked.S and 0 <= asked.correlation < 1):
        wanted = "1 <= rows <= S, heads a multiple of groups, dk of at least 1, and 0 <= correlation < 1"
        print(f"error: need {wanted}", file=sys.stderr)
        return 2
    lines = sample(
        NSAConfig(), asked.S, asked.rows, kv_heads=asked.groups, group_size=asked.heads // asked.groups, dk=asked.dk,
        correlation=asked.correlation, seed=asked.seed,
    )  # fmt: skip
    for line in lines:
        print(json.dumps(line))
    return 0
