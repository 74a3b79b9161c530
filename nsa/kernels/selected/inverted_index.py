"""The inverted index of selected attention.

It is built on the device without host synchronisation, atomics' order or randomness.

Queries and keys are flattened over the batch: a query is a row n, a key a row of k, whatever the layout (dense,
packed, or chunked with q_start). Three structures come out of the block indices:

    Places    for each query its sequence, its sequence's first key and its own key (the causal limit), so that no
              kernel needs to know the layout.
    Union     for each tile of neighbouring queries the distinct blocks that they chose, ascending, and who chose
              each (a bit for each query). Example, 2 queries with the blocks {0,3} and {3,5}:
              starts = [0*l', 3*l', 5*l'], members = [0b01, 0b11, 0b10], count = 3. Blocks that few share may be
              left out; of these, too, each query has its list, or each pair its key.
    Segments  for each block the queries that chose it, in order, cut into segments of at most `pairs` entries: the
              hot block that every query selects becomes many segments. A stable sort of (block, pair) does the count,
              the prefix sum and the fill, so the order never varies. `chunked_index` makes them in any order.

A pair is one (query, KV head, slot), numbered (n * Hkv + h) * slots + slot. A bin is a block's number over all
sequences: first_key // l_sel + sequence + block; unique, and dense up to one gap for each sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2
from nsa.kernels.ranges.key_ranges import Borders, last_at_most, pack
from nsa.plans import constant

FAR = tl.constexpr(1 << 30)  # a key that no query reaches
LEFT_OUT = tl.constexpr(1 << 16)  # added to the count of a union that some blocks were left out of


# --- where queries and blocks stand ---


@dataclass(frozen=True)
class Places:
    """Where each query and each block stands among the flattened keys.

    Attributes:
        queries: int32 [3,N]: sequence, its first key, the query's own key.
        blocks: int32 [2,bins]: first key of each bin's block and the end of its sequence; a bin that holds no
            block has first >= end.
        keys: rows of the flattened k.
        l_sel: tokens in one block.
        tokens: queries of each sequence, or 0 where sequences are packed.
        aligned: whether query n is key n.
        longest: blocks of one sequence, at most.
    """

    queries: Tensor
    blocks: Tensor
    keys: int
    l_sel: int
    tokens: int
    aligned: bool
    longest: int

    @property
    def bins(self) -> int:
        return self.blocks.shape[1]

    def reachable(self, chunk: int) -> int:
        """At most so many (chunk of queries, bin) have pairs: no query chooses a block of another sequence, nor one
        that begins after it.
        """
        rows, sequences = self.queries.shape[1], self.bins - self.keys // self.l_sel
        found = 0
        for first in range(0, rows, chunk):
            end, most = min(first + chunk, rows), self.bins
            if self.aligned:  # the last key's block is in this bin or before it, see `_bin`
                most = min(most, cdiv(end, self.l_sel) + sequences - 1)
            if self.tokens:
                most = min(most, ((end - 1) // self.tokens - first // self.tokens + 1) * self.longest)
            found += most
        return found


@launched
@triton.jit(do_not_specialize=["N", "S", "steps"])
def _query_places_kernel(q_borders, k_borders, q_start, out, N, S, steps, STARTED: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    sequence = last_at_most(q_borders, n, S, steps, live)
    first = tl.load(k_borders + sequence, mask=live, other=0)
    if STARTED:
        start = tl.load(q_start + sequence, mask=live, other=0).to(tl.int32)
        own = first + start + n - tl.load(q_borders + sequence, mask=live, other=0)
    else:  # queries are the last tokens
        end = tl.load(q_borders + sequence + 1, mask=live, other=0)
        own = tl.load(k_borders + sequence + 1, mask=live, other=0) + n - end
    tl.store(out + n, sequence, mask=live)
    tl.store(out + N + n, first, mask=live)
    tl.store(out + 2 * N + n, own, mask=live)


@launched
@triton.jit(do_not_specialize=["bins", "S", "steps"])
def _block_places_kernel(first_bins, k_borders, out, bins, S, steps, L_SEL: tl.constexpr, BLOCK: tl.constexpr):
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = x < bins
    sequence = last_at_most(first_bins, x, S, steps, live)
    block = x - tl.load(first_bins + sequence, mask=live, other=0)
    tl.store(out + x, tl.load(k_borders + sequence, mask=live, other=0) + block * L_SEL, mask=live)
    tl.store(out + bins + x, tl.load(k_borders + sequence + 1, mask=live, other=0), mask=live)


def places(q: Tensor, k: Tensor, l_sel: int, cu_seqlens: Borders = None, q_start: Tensor | None = None) -> Places:
    """Places of the queries of q [B,T,Hq,D] and of the blocks of k [B,Tk,Hkv,D]."""
    if cu_seqlens is None and q_start is None:
        return _dense_places(*q.shape[:2], k.shape[1], l_sel, q.device)
    if cu_seqlens is None:
        borders = _dense_borders(*q.shape[:2], k.shape[1], q.device)
        return _places(*borders, q.shape[:2].numel(), k.shape[:2].numel(), k.shape[1], l_sel, q_start, q.shape[1])
    borders = pack(cu_seqlens, q.shape[1], k.shape[1]).borders
    return _places(*borders, q.shape[1], k.shape[1], k.shape[1], l_sel, None, 0)


@constant
def _dense_places(batch: int, tokens: int, keys: int, l_sel: int, device: torch.device) -> Places:
    """Depends on sizes alone, so a layer that is called again finds it made."""
    borders = _dense_borders(batch, tokens, keys, device)
    return _places(*borders, batch * tokens, batch * keys, keys, l_sel, None, tokens)


def _dense_borders(batch: int, tokens: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
    counts = torch.arange(batch + 1, dtype=torch.int32, device=device)
    return counts * tokens, counts * keys


def _places(
    q_borders: Tensor, k_borders: Tensor, rows: int, keys: int, longest: int, l_sel: int, q_start: Tensor | None,
    tokens: int,
) -> Places:  # fmt: skip
    """Places of `rows` queries and `keys` keys in the sequences, of at most `longest`, that the int32 borders [S+1]
    name; `tokens` as of `Places`.
    """
    sequences, device = q_borders.numel() - 1, q_borders.device
    steps = max(1, math.ceil(math.log2(sequences + 1)))
    queries = torch.empty(3, rows, dtype=torch.int32, device=device)
    _query_places_kernel[(cdiv(rows, 1024),)](
        q_borders, k_borders, q_start, queries, rows, sequences, steps, STARTED=q_start is not None, BLOCK=1024
    )
    first_bins = k_borders[:-1] // l_sel + torch.arange(sequences, dtype=torch.int32, device=device)
    bins = keys // l_sel + sequences
    blocks = torch.empty(2, bins, dtype=torch.int32, device=device)
    _block_places_kernel[(cdiv(bins, 1024),)](
        first_bins, k_borders, blocks, bins, sequences, steps, L_SEL=l_sel, BLOCK=1024
    )
    aligned = q_start is None and rows == keys
    return Places(queries, blocks, keys, l_sel, tokens, aligned, cdiv(longest, l_sel))


# --- the union of a tile of queries ---


@dataclass(frozen=True)
class Union:
    """The distinct blocks of each tile of neighbouring queries.

    Attributes:
        starts: int32 [Hkv,tiles,U], the first keys of the blocks, ascending; `count` of them hold.
        members: int32 or int64 [Hkv,tiles,U]; bit b: query b of the tile chose the block.
        count: int32 [Hkv,tiles]; LEFT_OUT more where some of the tile's pairs were left out.
        lists: int32 [N,Hkv,slots] or None: of each query's blocks those that were left out, and -1 for the others.
        keys: int16 or int32 [pairs] or None, keys of all pairs for `segments`. Those left out of the union have their
            bin keys, (chunk * Hkv + h) * bins + bin < rest_keys; those in it follow, rest_keys + h * bins + bin;
            padding has the key past the last.
        rest_keys: how many keys there are for the pairs left out.
    """

    starts: Tensor
    members: Tensor
    count: Tensor
    lists: Tensor | None = None
    keys: Tensor | None = None
    rest_keys: int = 0


@triton.jit
def _bin(queries, n, start, N, L_SEL: tl.constexpr, live):
    """Bins of the blocks that begin at `start` in the sequences of the queries n."""
    first = tl.load(queries + N + n, mask=live, other=0)
    sequence = tl.load(queries + n, mask=live, other=0)
    return first // L_SEL + (start - first) // L_SEL + sequence


@launched
@triton.jit(do_not_specialize=["N", "M", "HKV", "BINS", "chunk", "rest_keys", "dense_from", "most"])
def _union_kernel(
    indices, queries, starts, members, count, lists, keys, N, M, HKV, BINS, chunk, rest_keys, dense_from, most, i_t,
    i_h, SLOTS: tl.constexpr, TB: tl.constexpr, U: tl.constexpr, L_SEL: tl.constexpr, WIDE: tl.constexpr,
    REST: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One tile of TB queries, one KV head: sort the blocks, number the distinct ones, set their members' bits."""
    tile, h = tl.program_id(0), tl.program_id(1)
    e = tl.arange(0, U)  # [U]
    tok, slot = e // SLOTS, e % SLOTS
    n = tile * TB + tok
    live = (tok < TB) & (n < N)
    block = tl.load(indices + n.to(tl.int64) * i_t + h.to(tl.int64) * i_h + slot, mask=live, other=-1)
    start = tl.where(block >= 0, tl.load(queries + N + n, mask=live, other=0) + block * L_SEL, M)
    if REST:
        limit = tl.load(queries + 2 * N + n, mask=live, other=FAR)
        lowest = tl.min(limit, 0)
        pair = (n.to(tl.int64) * HKV + h) * SLOTS + slot
        if KEYS:
            tl.store(keys + pair, tl.zeros_like(e) + rest_keys + HKV * BINS, mask=live & (start >= M))
        else:
            tl.store(lists + pair, tl.zeros_like(e) - 1, mask=live & (start >= M))
    key = start
    if WIDE:
        key = key.to(tl.int64)
    key = tl.sort((key * TB + tok) * SLOTS + slot)
    start = (key // (TB * SLOTS)).to(tl.int32)
    tok, slot = (key // SLOTS % TB).to(tl.int32), (key % SLOTS).to(tl.int32)
    valid = start < M
    base = (h * tl.num_programs(0) + tile).to(tl.int64) * U
    tl.store(starts + base + e, start)
    tl.store(members + base + e, tl.zeros_like(e).to(members.dtype.element_ty))
    tl.debug_barrier()
    before = tl.load(starts + base + tl.maximum(e - 1, 0))
    tl.debug_barrier()
    new = valid & ((e == 0) | (start != before))
    kept = valid
    left_out = 0
    if REST:  # keep a block in the union where enough queries share it, or where a query may not see all of it
        run = tl.cumsum(new.to(tl.int32), 0) - 1
        tl.store(starts + base + run, e, mask=new)
        tl.debug_barrier()
        begin = tl.load(starts + base + run, mask=valid, other=0)
        distinct = tl.sum(new.to(tl.int32), 0)
        left_out = tl.where(distinct > most, LEFT_OUT, 0)
        last = run + 1 >= distinct
        end = tl.load(starts + base + run + 1, mask=valid & (last == 0), other=0)
        tl.debug_barrier()
        shared = tl.where(last, tl.sum(valid.to(tl.int32), 0), end) - begin
        kept = valid & ((distinct <= most) | (shared >= dense_from) | (start + L_SEL > lowest + 1))
        n = tile * TB + tok
        pair = (n.to(tl.int64) * HKV + h) * SLOTS + slot
        if KEYS:
            bin_key = _bin(queries, n, start, N, L_SEL, valid) + h * BINS
            bin_key += tl.where(kept, rest_keys, n // chunk * (HKV * BINS))
            tl.store(keys + pair, bin_key, mask=valid)
        else:
            block = (start - tl.load(queries + N + n, mask=valid, other=0)) // L_SEL
            tl.store(lists + pair, tl.where(kept, -1, block), mask=valid)
    new = new & kept
    at = tl.cumsum(new.to(tl.int32), 0) - 1
    tl.store(starts + base + at, start, mask=new)
    bit = tl.full([U], 1, members.dtype.element_ty) << tok.to(members.dtype.element_ty)
    tl.atomic_or(members + base + at, bit, mask=kept, sem="relaxed")
    tl.store(count + h * tl.num_programs(0) + tile, tl.sum(new.to(tl.int32), 0) + left_out)


def union(indices: Tensor, where: Places, tokens: int, dense_from: int = 0, most: int = 0, chunk: int = 0) -> Union:
    """The union of each tile of `tokens` neighbouring queries.

    Args:
        indices: int32 [N,Hkv,slots], -1 anywhere.
        where: the places of the N queries.
        tokens: queries of one tile, at most 64.
        dense_from: if not 0, only blocks that this many of a tile's queries share (or that some of them may not
            see whole) stay in the union, and `lists` is made, or `keys`.
        most: with `dense_from`, a union of at most so many blocks stays as it is.
        chunk: if not 0, `keys` is made for all pairs, and this many queries' are neighbours among those left out.
    """
    rows, heads, slots = indices.shape
    tiles, width = cdiv(rows, tokens), next_power_of_2(tokens * slots)
    device = indices.device
    starts = torch.empty(heads, tiles, width, dtype=torch.int32, device=device)
    members = torch.empty(heads, tiles, width, dtype=torch.int32 if tokens <= 32 else torch.int64, device=device)
    count = torch.empty(heads, tiles, dtype=torch.int32, device=device)
    rest_keys = cdiv(rows, chunk) * heads * where.bins if chunk else 0
    keys = _key_of_each(indices, rest_keys + heads * where.bins) if chunk else None
    lists = torch.empty(indices.shape, dtype=torch.int32, device=device) if dense_from and not chunk else None
    _union_kernel[(tiles, heads)](
        indices, where.queries, starts, members, count, lists, keys,
        rows, where.keys, heads, where.bins, chunk, rest_keys, dense_from, most, indices.stride(0), indices.stride(1),
        SLOTS=slots, TB=tokens, U=width, L_SEL=where.l_sel, REST=dense_from > 0, KEYS=chunk > 0,
        WIDE=(where.keys + 2) * tokens * slots >= 1 << 31, num_warps=1 if width <= 256 else 4,
    )  # fmt: skip
    return Union(starts, members, count, lists, keys, rest_keys)


# --- the queries of each block ---


@dataclass(frozen=True)
class Segments:
    """The pairs sorted by bin key, cut into segments of at most `pairs` pairs of one bin.

    Attributes:
        order: int64 or int32 [pairs in all], pair numbers, below 2^31, sorted by key, then by query (from
            `chunked_index` in any order).
        edges: int32 [K+1], where each key's pairs begin in `order`.
        segment_edges: int32 [K+1], where each key's segments begin among all segments.
        segment_key: int32 [R], the key of each segment, >= K where there is none; R bounds the number of segments.
        pairs: pairs of a full segment.
    """

    order: Tensor
    edges: Tensor
    segment_edges: Tensor
    segment_key: Tensor
    pairs: int

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """As kernels take them."""
        return self.order, self.edges, self.segment_edges, self.segment_key


def _key_of_each(indices: Tensor, last_key: int) -> Tensor:
    """A new tensor for a key <= last_key of each pair: narrow where it can be, which is half the passes of a sort."""
    return torch.empty(indices.numel(), dtype=torch.int16 if last_key < 1 << 15 else torch.int32, device=indices.device)


@triton.jit
def pairs_of(indices, queries, N, i_t, i_h, SLOTS: tl.constexpr, L_SEL: tl.constexpr, BLOCK: tl.constexpr):
    """A block of the pairs of the KV head of program_id(1): their queries, slots and bins, and which have a block."""
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n, slot = e // SLOTS, e % SLOTS
    block = tl.load(indices + n.to(tl.int64) * i_t + tl.program_id(1).to(tl.int64) * i_h + slot, mask=n < N, other=-1)
    start = tl.load(queries + N + n, mask=n < N, other=0) + block * L_SEL
    return n, slot, _bin(queries, n, start, N, L_SEL, n < N), block >= 0


@launched
@triton.jit(do_not_specialize=["N", "HKV", "BINS", "past"])
def _pair_keys_kernel(indices, queries, keys, N, HKV, BINS, past, i_t, i_h, SLOTS: tl.constexpr,
                      L_SEL: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    h = tl.program_id(1)
    n, slot, bins, chosen = pairs_of(indices, queries, N, i_t, i_h, SLOTS, L_SEL, BLOCK)
    key = tl.where(chosen, h * BINS + bins, past)
    tl.store(keys + (n.to(tl.int64) * HKV + h) * SLOTS + slot, key, mask=n < N)


def pair_keys(indices: Tensor, where: Places) -> Tensor:
    """Bin keys [pairs] of all pairs of indices [N,Hkv,slots]; padding gets Hkv * bins."""
    rows, heads, slots = indices.shape
    keys = _key_of_each(indices, heads * where.bins)
    _pair_keys_kernel[(cdiv(rows * slots, 1024), heads)](
        indices, where.queries, keys, rows, heads, where.bins, heads * where.bins, indices.stride(0), indices.stride(1),
        SLOTS=slots, L_SEL=where.l_sel, BLOCK=1024,
    )  # fmt: skip
    return keys


@launched
@triton.jit(do_not_specialize=["P", "K", "steps"])
def _edges_kernel(ordered, edges, P, K, steps, BLOCK: tl.constexpr):
    """Binary search among P sorted keys: where each of K keys begins, and where all end."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = x <= K
    first, high = tl.zeros_like(x), tl.zeros_like(x) + P  # the first pair whose key is at least x
    for _ in range(steps):
        middle = (first + high) // 2
        below = tl.load(ordered + middle, mask=live & (first < high), other=0).to(tl.int32) < x
        below &= first < high
        first, high = tl.where(below, middle + 1, first), tl.where(below, high, middle)
    tl.store(edges + x, first, mask=live)


@launched
@triton.jit(do_not_specialize=["K", "pairs"])
def _segment_edges_kernel(edges, segment_edges, K, pairs, BLOCK: tl.constexpr):
    """Where the segments of each of K keys begin among all, and where all end: one program adds up."""
    before = 0
    tl.store(segment_edges, before)
    for i in range(tl.cdiv(K, BLOCK)):
        x = i * BLOCK + tl.arange(0, BLOCK)
        count = tl.load(edges + x + 1, mask=x < K, other=0) - tl.load(edges + x, mask=x < K, other=0)
        count = (count + pairs - 1) // pairs
        tl.store(segment_edges + x + 1, before + tl.cumsum(count, 0), mask=x < K)
        before += tl.sum(count, 0)


@launched
@triton.jit(do_not_specialize=["R", "K", "steps"])
def _segment_keys_kernel(segment_edges, segment_key, R, K, steps, BLOCK: tl.constexpr):
    """Binary search: the key of each of R segments, K where there are fewer."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key, high = tl.zeros_like(x), tl.zeros_like(x) + K  # the first whose segments end beyond x
    for _ in range(steps):
        middle = (key + high) // 2
        below = tl.load(segment_edges + middle + 1, mask=(x < R) & (key < high), other=0) <= x
        below &= key < high
        key, high = tl.where(below, middle + 1, key), tl.where(below, high, middle)
    tl.store(segment_key + x, key, mask=x < R)


def segments(keys: Tensor, last_key: int, pairs: int, used: int) -> Segments:
    """Segments of at most `pairs` pairs.

    Args:
        keys: bin keys of all pairs; those >= last_key belong to no segment.
        last_key: how many keys there are.
        pairs: the longest segment.
        used: how many keys can have pairs.

    Raises:
        ValueError: 2^31 pairs or more.
    """
    count = keys.numel()
    if count >= 1 << 31:
        raise ValueError(f"selected attention: {count} pairs of query and block, more than 2^31 - 1")
    most = count // pairs + min(used, count)
    edges, segment_edges = (torch.empty(last_key + 1, dtype=torch.int32, device=keys.device) for _ in range(2))
    segment_key = torch.empty(most, dtype=torch.int32, device=keys.device)
    ordered, order = torch.sort(keys, stable=True)
    _edges_kernel[(cdiv(last_key + 1, 128),)](ordered, edges, count, last_key, count.bit_length(), BLOCK=128)
    _segment_edges_kernel[(1,)](edges, segment_edges, last_key, pairs, BLOCK=4096, num_warps=8)
    _segment_keys_kernel[(cdiv(most, 128),)](
        segment_edges, segment_key, most, last_key, last_key.bit_length(), BLOCK=128
    )
    return Segments(order, edges, segment_edges, segment_key, pairs)
