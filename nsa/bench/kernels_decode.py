"""One decode step inside a CUDA graph, against dense attention to the same context inside one.

Every row is judged first: the captured step's output by the PyTorch backend on a copy of the cache, and
what one new token reads by a formula. `floor` is the least traffic, of several new tokens that of the last one.
`us` is the median of replays after the level-2 cache was emptied; `us_warm` that of replays directly after each other.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import NSACache, blocks, ops
from nsa.bench import rows as table_rows
from nsa.bench import tables
from nsa.bench.cases import SHAPES, Case, Where, case_of, inputs
from nsa.bench.kernels_parts import SDPA, kernel_of
from nsa.bench.options import add_where, integers, parser, positive, where_of
from nsa.bench.roofline import Work, floor_ms
from nsa.bench.timing import captured, cold

COLUMNS = ("shape", "B", "context", "new", "by", "us", "min", "max", "us_warm", "floor", "error", "reads")
CHUNK = 8192
"""Tokens that the cache takes in at once."""
ROOM = 1024
"""Tokens that replays may append."""
BACK_TO_BACK, WARM = 20, 3
TOLERANCE = 3e-2
Row = dict[str, Any]


def normal(case: Case, tokens: int, where: Where) -> tuple[Tensor, Tensor]:
    """Keys and values [B,tokens,Hkv,D*]."""
    shape = case.batch, tokens, case.kv_heads
    k, v = (torch.randn(*shape, dim, device=where.device, dtype=where.dtype) for dim in (case.dk, case.dv))
    return k, v


def filled(case: Case, where: Where, page_size: int | None, tokens: int) -> NSACache:
    """A cache with so many tokens of each sequence and room for the case's context and replays."""
    cache = NSACache(
        case.config, case.batch, case.kv_heads, case.dk, case.dv,
        capacity=case.tokens + ROOM, dtype=where.dtype, device=where.device, page_size=page_size,
    )  # fmt: skip
    cache.reserve(case.tokens + ROOM)
    for first in range(0, tokens, CHUNK):
        cache.append(*normal(case, min(CHUNK, tokens - first), where))
    return cache


def drawn(case: Case, where: Where, new: int) -> dict[str, Tensor]:
    """The last tokens of the context, in tensors that stay where they are; k and v serve all branches."""
    x = inputs(replace(case, tokens=new), where)
    return {name: x[name] for name in ("q", "k", "v", "gates")}


def timed(graph: torch.cuda.CUDAGraph, device: torch.device, repeats: int) -> Row:
    """Microseconds of `replays(repeats)`: median, least and most with an empty L2 cache, and warm, after each other."""

    def back_to_back() -> None:
        for _ in range(BACK_TO_BACK):
            graph.replay()

    us = [1e3 * cold(graph.replay, device) for _ in range(repeats)]
    warm = [1e3 * cold(back_to_back, device) / BACK_TO_BACK for _ in range(WARM)]
    return {"us": statistics.median(us), "min": min(us), "max": max(us), "us_warm": statistics.median(warm)}


def replays(repeats: int) -> int:
    """Of one measurement."""
    return repeats + WARM * BACK_TO_BACK


# --- what is measured ---


def ours(case: Case, where: Where, args: argparse.Namespace, new: int, page_size: int | None) -> Row:
    """The row of the Triton backend."""
    cache, tokens = filled(case, where, page_size, case.tokens - 2 * new), drawn(case, where, new)

    def step(cache: NSACache = cache, backend: str = "triton") -> Tensor:
        return ops.nsa_decode(**tokens, cache=cache, backend=backend, strict=True)

    step()
    expected = step(deepcopy(cache), "torch")
    graph, o = captured(step)
    graph.replay()
    cache.advance(new)
    found: Row = {"error": float((o.float() - expected.float()).abs().max())}
    found["reads_expected"] = case.batch * blocks.reads_expected(case.tokens - 1, case.config)
    if cache.reads is not None:  # of one new token
        found["reads"] = int(cache.reads.sum())
    found |= timed(graph, where.device, args.repeats)
    cache.advance(new * replays(args.repeats))
    ends = case.tokens + new * replays(args.repeats)
    found["lengths_right"] = cache.lengths.tolist() == [ends] * case.batch
    found["bytes"] = found["reads_expected"] * case.kv_heads * (case.dk + case.dv) * tokens["q"].element_size()
    counted = new > 1 or found["reads"] == found["reads_expected"]
    found["right"] = found["error"] < TOLERANCE and counted and found["lengths_right"]
    return {"by": "triton" if page_size is None else f"triton, pages of {page_size}", **found}


def dense(case: Case, where: Where, args: argparse.Namespace, new: int, by: str) -> Row:
    """Attention to the whole context by one of PyTorch's backends."""
    k, v = (x.transpose(1, 2) for x in normal(case, case.tokens, where))
    q = drawn(case, where, new)["q"].transpose(1, 2)

    def call() -> Tensor:
        with kernel_of(by):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    try:
        call()
        graph, _ = captured(call)
    except RuntimeError as error:
        return {"by": by, "failed": table_rows.sentence(error)}
    size = case.batch * case.tokens * case.kv_heads * (case.dk + case.dv) * q.element_size()
    return {"by": by, **timed(graph, where.device, args.repeats), "bytes": size}


def measure(case: Case, where: Where, args: argparse.Namespace, new: int) -> Iterator[Row]:
    """The rows of one shape, batch, context and number of new tokens, which are the context's last."""
    base: Row = {"shape": case.shape, "B": case.batch, "context": case.tokens, "new": new}
    for page_size in (None, *([args.page_size] if args.page_size else [])):
        yield {**base, **ours(case, where, args, new, page_size)}
    if not args.no_peers:
        for by in SDPA:
            yield {**base, **dense(case, where, args, new, by)}


# --- the command ---


def parse(argv: list[str]) -> argparse.Namespace:
    """The options; lists are written with commas."""
    to = parser("kernels --decode", __doc__)
    to.add_argument("--shapes", default="P128,L128", help=f"of {', '.join(SHAPES)} or heads/kv_heads/dk/dv")
    to.add_argument("--tokens", type=integers, default="8192,65536,131072", help="contexts, new tokens included")
    to.add_argument("--new", type=integers, default="1", help="new tokens of each sequence")
    to.add_argument("--batches", type=integers, default="1,16", help="sequences")
    to.add_argument("--page-size", type=positive, default=None, help="also with pages of so many tokens")
    to.add_argument("--no-peers", action="store_true", help="ours only")
    to.add_argument("--repeats", type=positive, default=30, help="timed replays")
    to.add_argument("--json", type=Path, default=None, help="write everything there")
    add_where(to)
    return to.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the bench; 1 if a row was judged wrong."""
    args = parse(argv)
    where = where_of(args)
    if where.device.type != "cuda":
        raise ValueError("a decode step is timed inside a CUDA graph: a CUDA device is needed")
    table_rows.say(table_rows.headline(where.device, where.dtype))
    if (appended := max(args.new) * replays(args.repeats)) > ROOM:
        raise ValueError(f"--new and --repeats: the replays append {appended} tokens, expected at most {ROOM}")
    torch.manual_seed(where.seed)
    found: list[Row] = []
    for shape, batch, tokens, new in product(args.shapes.split(","), args.batches, args.tokens, args.new):
        found += measure(replace(case_of(shape, tokens, "random"), batch=batch), where, args, new)
        torch.cuda.empty_cache()
        table_rows.write_json(args.json, context=table_rows.context(where.device, where.dtype), rows=found)
    _show(found, where.device)
    return 0 if all(row.get("right", True) for row in found) else 1


def _show(found: list[Row], device: torch.device) -> None:
    timed = [row for row in found if "us" in row]
    floors = [floor_ms(device, Work(row["bytes"])) for row in timed]
    shown = [{**row, "floor": floor and 1e3 * floor} for row, floor in zip(timed, floors, strict=True)]
    print(tables.shown(shown, COLUMNS))
    for row in found:
        if "failed" in row or not row.get("right", True):
            what = f"{row['shape']} B={row['B']} {row['context']} new {row['new']}"
            print(f"{what} {row['by']}: {row.get('failed', 'WRONG')}")
