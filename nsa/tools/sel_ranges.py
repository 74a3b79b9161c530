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

HEADS, KV_HEADS, DK = 8, 2, 64
CORRELATION = 0.98
"""Of neighbouring tokens."""


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


def sample(tokens: int, rows: int) -> Iterator[dict[str, Any]]:
    """Lines for `rows` queries spread over a sequence of `tokens`, with the default sizes."""
    config, random = NSAConfig(), torch.Generator().manual_seed(0)
    q, k = (walk(torch.randn(1, tokens, heads, DK, generator=random), CORRELATION) for heads in (HEADS, KV_HEADS))
    with routing.record() as recording:
        indices = ops.select_blocks(q, ops.compress(k, config), config)
    route = str(recording.of("select")[-1])
    ranges = blocks.indices_to_ranges(indices, blocks.token_positions(1, tokens), config)
    for t in sorted({(i + 1) * tokens // rows - 1 for i in range(rows)}):
        for head in range(KV_HEADS):
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
    parser.add_argument("--S", type=int, default=4096, help="tokens of the sequence")
    parser.add_argument("--rows", type=int, default=16, help="queries that are told about")
    asked = parser.parse_args(argv)
    if not 1 <= asked.rows <= asked.S:
        print("error: need 1 <= rows <= S", file=sys.stderr)
        return 2
    for line in sample(asked.S, asked.rows):
        print(json.dumps(line))
    return 0
