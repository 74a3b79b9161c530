"""The inverted index of the forward pass and of the gradient in one kernel: for each block the queries of a chunk that
chose it, in any order.

That gradient adds up in the order of the moment anyway, and the forward's results do not depend on the order, so
nothing is sorted: a first kernel counts the pairs of each key with atomics, which gives each pair its rank, a second
adds the counts up, a third puts each pair in its place.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv
from nsa.kernels.ranges.fused import cleared
from nsa.kernels.selected.inverted_index import Places, Segments, pairs_of

BLOCK = 1024
"""Pairs of a program."""

KEYS = 4096
"""Keys that are added up at once."""


@triton.jit
def _keys(
    indices, queries, N, HKV, BINS, CHUNKS, chunk, i_t, i_h, SLOTS: tl.constexpr, L_SEL: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Keys and numbers of a block of pairs, and which have a block."""
    h = tl.program_id(1)
    n, slot, bins, chosen = pairs_of(indices, queries, N, i_t, i_h, SLOTS, L_SEL, BLOCK)
    return (h * CHUNKS + n // chunk) * BINS + bins, (n.to(tl.int64) * HKV + h) * SLOTS + slot, chosen


@launched
@triton.jit(do_not_specialize=["N", "HKV", "BINS", "CHUNKS", "chunk"])
def _rank_kernel(
    indices, queries, counts, ranks, N, HKV, BINS, CHUNKS, chunk, i_t, i_h, SLOTS: tl.constexpr, L_SEL: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """counts [keys], zeros, take how many pairs each key has, ranks [pairs] which of them each pair is."""
    key, pair, chosen = _keys(indices, queries, N, HKV, BINS, CHUNKS, chunk, i_t, i_h, SLOTS, L_SEL, BLOCK)
    rank = tl.atomic_add(counts + key, 1, mask=chosen, sem="relaxed")
    tl.store(ranks + pair, rank, mask=chosen)


@launched
@triton.jit(do_not_specialize=["K", "R", "pairs"])
def _add_up_kernel(counts, edges, segment_edges, segment_key, K, R, pairs, BLOCK: tl.constexpr):
    """Where the pairs and the segments of each of K keys begin and where all end, and each segment's key: one program
    adds up. There are R segments at most, unless a query chose what it may not.
    """
    all_pairs, all_segments = 0, 0
    tl.store(edges, all_pairs)
    tl.store(segment_edges, all_segments)
    for i in range(tl.cdiv(K, BLOCK)):
        x = i * BLOCK + tl.arange(0, BLOCK)
        count = tl.load(counts + x, mask=x < K, other=0)
        held = (count + pairs - 1) // pairs
        end = all_segments + tl.cumsum(held, 0)
        begin = end - held
        tl.store(edges + x + 1, all_pairs + tl.cumsum(count, 0), mask=x < K)
        tl.store(segment_edges + x + 1, tl.minimum(end, R), mask=x < K)
        for j in range(tl.max(held, 0)):
            tl.store(segment_key + begin + j, x, mask=(j < held) & (begin + j < R))
        all_pairs += tl.sum(count, 0)
        all_segments += tl.sum(held, 0)


@launched
@triton.jit(do_not_specialize=["N", "HKV", "BINS", "CHUNKS", "chunk"])
def _place_kernel(
    indices, queries, edges, ranks, order, N, HKV, BINS, CHUNKS, chunk, i_t, i_h, SLOTS: tl.constexpr,
    L_SEL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    key, pair, chosen = _keys(indices, queries, N, HKV, BINS, CHUNKS, chunk, i_t, i_h, SLOTS, L_SEL, BLOCK)
    at = tl.load(edges + key, mask=chosen, other=0) + tl.load(ranks + pair, mask=chosen, other=0)
    tl.store(order + at, pair, mask=chosen)


def segments(indices: Tensor, where: Places, chunk: int, pairs: int) -> Segments:
    """Segments of at most `pairs` pairs of one KV head, one chunk of the queries and one bin, in this order of keys:
    (h * chunks + chunk) * bins + bin.

    Args:
        indices: int32 [N,Hkv,slots], -1 anywhere.
        where: the places of the N queries.
        chunk: queries of a chunk; of a bin no query has two pairs.

    Raises:
        ValueError: 2^31 pairs or more.
    """
    rows, heads, slots = indices.shape
    count, chunks = indices.numel(), cdiv(rows, chunk)
    if count >= 1 << 31:
        raise ValueError(f"selected attention: {count} pairs of query and block, more than 2^31 - 1")
    keys = heads * chunks * where.bins
    most = count // pairs + min(heads * where.reachable(chunk), count)

    def room(size: int) -> Tensor:
        return torch.empty(size, dtype=torch.int32, device=indices.device)

    counts, ranks, order = cleared(room(keys)), room(count), room(count)
    edges, segment_edges, segment_key = room(keys + 1), room(keys + 1), room(most)
    facts = rows, heads, where.bins, chunks, chunk, *indices.stride()[:2]
    how = {"SLOTS": slots, "L_SEL": where.l_sel, "BLOCK": BLOCK}
    grid = cdiv(rows * slots, BLOCK), heads
    _rank_kernel[grid](indices, where.queries, counts, ranks, *facts, **how)
    _add_up_kernel[(1,)](counts, edges, segment_edges, segment_key, keys, most, pairs, BLOCK=KEYS, num_warps=8)
    _place_kernel[grid](indices, where.queries, edges, ranks, order, *facts, **how)
    return Segments(order, edges, segment_edges, segment_key, pairs)
