"""Selected attention: every query attends to the positions up to its own in the blocks it chose.

    forward(q, k, v, block_indices, config, scale, ...) -> o, lse
    backward(do, q, k, v, stats, block_indices, config, scale, ...) -> dq, dk, dv
    selected_attention(...) -> o, lse, with gradients of o

The kernels are in `selected_fwd` and `selected_bwd`, the index structures in `index`, the ways of sharing the work in
`schedules`. The host never waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels import combine
from nsa.kernels.common.backward_preprocess import row_stats
from nsa.kernels.common.softmax import online
from nsa.kernels.common.tiles import LOG2E, cdiv, dot_precision, next_power_of_2, pad_group, rows_last, widths
from nsa.kernels.common.tma import copy_engine, key_tiles
from nsa.kernels.selected import inverted_index as index
from nsa.kernels.selected.backward import dkv_kernel, dq_kernel, reduce_kernel
from nsa.kernels.selected.forward import forward_kernel, gather_kernel
from nsa.kernels.selected.tile_scheduler import ALWAYS, NEVER, WHOLE, Schedule, choose_schedule
from nsa.kernels.tuning.lookup import config_for

RUNS_WANTED = 4096
"""Runs of the gradient of k and v that fill the card with even work (measured on an H200)."""

RUNS_HELD = 4096
"""Runs whose partial sums are held at once: 64 KB each with blocks of 64 keys and heads of 128."""


@dataclass(frozen=True)
class _Problem:
    """The flattened operands of one call: q [N,Hq,Dk], k [M,Hkv,Dk], v [M,Hkv,Dv], indices [N,Hkv,slots]."""

    q: Tensor
    k: Tensor
    v: Tensor
    indices: Tensor
    where: index.Places
    scale: float

    @cached_property
    def heads(self) -> int:
        return self.k.shape[1]

    @cached_property
    def group(self) -> int:
        return self.q.shape[1] // self.heads

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Token and head strides of q, k and v."""
        return (*self.q.stride()[:2], *self.k.stride()[:2], *self.v.stride()[:2])

    @cached_property
    def sizes(self) -> dict[str, Any]:
        """Compile-time arguments that all kernels share."""
        return {
            "H": self.heads, "G": self.group, "GP": pad_group(self.group), "LB": self.where.l_sel,
            "SLOTS": self.indices.shape[-1], "PREC": dot_precision(self.q.dtype),
            **widths(self.q.shape[-1], self.v.shape[-1]),
        }  # fmt: skip

    def tile(self, kernel: str, tma: bool = False) -> dict[str, int]:
        """The tile and the warps of `kernel`."""
        return config_for(kernel + "_tma" if tma else kernel, self.q, self.v).launch(pad_group(self.group))

    def launch(self, kernel: str, tma: bool = False) -> dict[str, Any]:
        """The compile-time arguments of `kernel`; a tile of keys is no longer than a block."""
        tile, block = self.tile(kernel, tma), max(16, next_power_of_2(self.where.l_sel))
        return {**self.sizes, **tile, "BN": min(tile["BN"], block)}

    def schedule(self, kernel: str, backward: bool) -> Schedule:
        """What `choose_schedule` names for this problem and the tiles of `kernel`."""
        tokens = self.tile(kernel)["BM"] // pad_group(self.group)
        widest = max(self.q.shape[-1], self.v.shape[-1])
        rows, slots, item = self.indices.shape[0], self.indices.shape[-1], self.q.element_size()
        return choose_schedule(self.group, tokens, slots, self.where.l_sel, widest, backward, item, rows)

    @cached_property
    def one_batch(self) -> tuple[Tensor, Tensor]:
        """k and v [1,M,Hkv,D*]."""
        return self.k[None], self.v[None]

    def descriptors(self, rows: int, tma: bool) -> tuple[Any, ...]:
        """Tiles of `rows` keys for the copy engine: two parts of k and two of v, None for what there is not."""
        k, v = self.one_batch
        return (*key_tiles(k, rows, tma), *key_tiles(v, rows, tma))

    def copy_engine(self) -> bool:
        """Whether k and v can be loaded by descriptor."""
        return copy_engine(*self.one_batch)


def _problem(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, scale: float,
    cu_seqlens: Tensor | None, q_start: Tensor | None,
) -> _Problem:  # fmt: skip
    where = index.places(q, k, config.l_sel, cu_seqlens, q_start)
    flat = (rows_last(x).flatten(0, 1) for x in (q, k, v, block_indices.to(torch.int32)))
    return _Problem(*flat, where, scale)


# --- forward ---


@dataclass(frozen=True)
class Sum:
    """The gated sum of the three branches, made where the selected branch is.

    Attributes:
        o_cmp, o_win: [B,T,Hq,Dv], contiguous.
        gates: [B,T,Hq,3], contiguous.
        out: where the sum is written, [B,T,Hq,Dv], contiguous.
        keep: whether the selected branch's own output is stored too.
    """

    o_cmp: Tensor
    o_win: Tensor
    gates: Tensor
    out: Tensor
    keep: bool


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_indices: Tensor,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    schedule: Schedule | None = None,
    into: Sum | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of q [B,T,Hq,Dk] to the blocks of k [B,S,Hkv,Dk], v [B,S,Hkv,Dv].

    Args:
        block_indices: int [B,T,Hkv,slots], blocks of the query's own sequence; -1 anywhere is padding.
        cu_seqlens: borders of packed sequences, int32 [N+1]; B must be 1.
        q_start: int [B], position of each batch entry's first query; excludes `cu_seqlens`.
        schedule: None for the one that `choose_schedule` names.
        into: also write the gated sum of all branches.

    Returns:
        o [B,T,Hq,Dv], unless `into` says not to keep it; lse fp32 [B,T,Hq], natural logarithm.
        A query without blocks has o = 0 and lse = -inf.
    """
    o = q.new_empty(*q.shape[:3], v.shape[-1]) if into is None or into.keep else into.out
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if not o.numel():
        return o, lse
    if not block_indices.shape[-1]:
        o, lse = torch.zeros_like(o), lse.fill_(float("-inf"))
        if into is not None:
            combine.forward(into.o_cmp, o, into.o_win, into.gates, into.out)
        return o, lse
    problem = _problem(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
    schedule = schedule or problem.schedule("selected_tile_forward", backward=False)
    results = _Results(o, lse, into)
    if schedule.dense_from:
        _forward_gather(problem, schedule, results)
    else:
        _forward_mixed(problem, schedule, results)
    return o, lse


@dataclass(frozen=True)
class _Results:
    """Where the forward kernels write."""

    o: Tensor
    lse: Tensor
    into: Sum | None

    @property
    def pointers(self) -> tuple[Tensor, ...]:
        """o, lse and what the gated sum takes and gives; what is not wanted stands in."""
        more = (self.o,) * 4 if (x := self.into) is None else (x.o_cmp, x.o_win, x.gates, x.out)
        return self.o, self.lse, *more

    @property
    def flags(self) -> dict[str, bool]:
        return {"SUM": self.into is not None, "KEEP": self.into is None or self.into.keep}


def _forward_mixed(p: _Problem, schedule: Schedule, to: _Results) -> None:
    """Tiles with small unions by the tile kernel, the queries of the others by the token kernel."""
    tma = p.copy_engine()
    tile = p.launch("selected_tile_forward", tma)
    tokens, union = tile["BM"] // tile["GP"], None
    if schedule.most != NEVER:
        union = index.union(p.indices, p.where, tokens)
        _launch_forward(p, tile, union, tokens, to, most=schedule.most, tma=tma)
    if schedule.most != ALWAYS:
        token = p.launch("selected_token_forward", tma)
        _launch_forward(p, token, union, tokens, to, most=schedule.most, tile=False, tma=tma)


def _forward_gather(p: _Problem, schedule: Schedule, to: _Results) -> None:
    """Tiles with small unions by the tile kernel; of the others, widely shared blocks by the tile kernel too, and the
    rest by the gather kernel, chunk of queries by chunk.
    """
    tma = p.copy_engine()
    tile, gather = p.launch("selected_merge_forward", tma), p.launch("selected_gather_forward")
    gather["BN"] = max(16, next_power_of_2(p.where.l_sel))
    rows, slots, tokens = p.indices.shape[0], p.indices.shape[-1], tile["BM"] // tile["GP"]
    chunk = min(cdiv(schedule.chunk, tokens), cdiv(rows, tokens)) * tokens
    union = index.union(p.indices, p.where, tokens, schedule.dense_from, schedule.most, chunk)
    _launch_forward(p, tile, union, tokens, to, most=WHOLE, tma=tma)
    runs = index.runs(union.keys, union.rest_keys, schedule.pairs, p.heads * p.where.reachable(chunk))
    held = chunk * p.heads * slots
    part = p.v.new_empty(held * p.group, p.v.shape[-1])
    part_lse = torch.empty(held * p.group, dtype=torch.float32, device=part.device)
    most_runs = held // schedule.pairs + min(held, p.heads * p.where.bins)
    keys = p.heads * p.where.bins
    for i, first in enumerate(range(0, rows, chunk)):
        gather_kernel[(most_runs,)](
            p.q, p.k, p.v, part, part_lse, runs.order, runs.edges, runs.run_edges, runs.run_key, p.where.blocks,
            p.where.keys, first, i * keys, (i + 1) * keys, p.where.bins, *p.strides, p.scale * LOG2E.value,
            PAIRS=schedule.pairs, **gather,
        )  # fmt: skip
        span = (first, min(chunk, rows - first))
        _launch_forward(p, tile, union, tokens, to, part=(part, part_lse), span=span, tma=tma)


def _launch_forward(
    p: _Problem, sizes: dict[str, Any], union: index.Union | None, union_tokens: int, to: _Results, *,
    tma: bool, most: int = ALWAYS, tile: bool = True, part: tuple[Tensor, Tensor] | None = None,
    span: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    """The tile kernel or the token kernel over the queries `span` = (first, count), all unless given."""
    first, rows = span or (0, p.indices.shape[0])
    together = union_tokens if union else 1
    lists = _Lists.of(p, union, tile, merge=part is not None)
    forward_kernel[(cdiv(rows, together), p.heads)](
        p.q, p.k, p.v, *p.descriptors(sizes["BN"], tma), *to.pointers, *lists.blocks, p.where.queries,
        lists.keys, *(part or (to.o, to.lse)),
        p.indices.shape[0], first, lists.tiles, most, lists.rest_keys,
        *p.strides, *lists.strides, p.scale * LOG2E.value,
        TB=together if tile else 1, UT=together, U=lists.width, SP=next_power_of_2(sizes["SLOTS"]),
        TILE=tile, MERGE=part is not None, ONLINE=online(p.q, tma), STAGES=sizes["num_stages"], TMA=tma,
        **to.flags, **sizes,
    )  # fmt: skip


@dataclass(frozen=True)
class _Lists:
    """The blocks that a kernel reads: a tile's union, or each query's own. What a kernel does not read stands in.

    Attributes:
        blocks: first keys [Hkv,tiles,U] or indices [N,Hkv,slots]; members; counts.
        strides: of the indices; 0 for a union.
        tiles, width: tiles of the union and its U.
        keys, rest_keys: of the union where partial results are merged.
    """

    blocks: tuple[Tensor, Tensor, Tensor]
    strides: tuple[int, int]
    tiles: int
    width: int
    keys: Tensor
    rest_keys: int

    @classmethod
    def of(cls, p: _Problem, union: index.Union | None, tile: bool, merge: bool) -> _Lists:
        if union is None:
            return cls((p.indices,) * 3, p.indices.stride()[:2], 0, 0, p.indices, 0)
        keys, rest = (union.keys, union.rest_keys) if merge else (union.count, 0)
        first, strides = (union.starts, (0, 0)) if tile else (p.indices, p.indices.stride()[:2])
        tiles, width = union.starts.shape[1:]
        return cls((first, union.members, union.count), strides, tiles, width, keys, rest)


# --- backward ---


def backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    stats: Tensor,
    block_indices: Tensor,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    dq: Tensor | None = None,
    schedule: Schedule | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, bitwise the same in every run.

    Args:
        do: gradient of `o`, or of what a gate makes of it, [B,T,Hq,Dv].
        q, k, v, block_indices, config, scale, cu_seqlens, q_start: as in `forward`.
        stats: `row_stats` of the forward's output, or of that under a gate (`combine.stats`), contiguous [B,T,Hq].
        dq: contiguous [B,T,Hq,Dk]; given, the gradient is added to it instead of a new tensor.
        schedule: None for the one that `choose_schedule` names.
    """
    added = dq is not None
    dq = q.new_zeros(q.shape) if dq is None and not block_indices.numel() else dq
    dk, dv = k.new_empty(k.shape), v.new_empty(v.shape)
    if not q.numel() or not block_indices.numel():
        return (torch.zeros_like(q) if dq is None else dq), dk.zero_(), dv.zero_()
    dq = q.new_empty(q.shape) if dq is None else dq
    problem = _problem(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
    schedule = schedule or problem.schedule("selected_tile_dq", backward=True)
    upstream = do.contiguous(), stats
    if schedule.dense_from:
        _backward_gather(problem, schedule, upstream, dq, dk, dv, added)
    else:
        _backward_q(problem, schedule, upstream, dq, added)
        _backward_kv(problem, upstream, dk, dv)
    return dq, dk, dv


_Upstream = tuple[Tensor, Tensor]
"""What comes back into the operation: do [B,T,Hq,Dv] and the stats of its rows."""


def _backward_q(p: _Problem, schedule: Schedule, up: _Upstream, dq: Tensor, add: bool) -> None:
    """dq by the tile kernel where unions are small, else by the token kernel."""
    tma = p.copy_engine()
    sizes = p.launch("selected_tile_dq", tma)
    tokens, union = sizes["BM"] // sizes["GP"], None
    if schedule.most != NEVER:
        union = index.union(p.indices, p.where, tokens)
        _launch_dq(p, sizes, union, tokens, up, dq, add=add, most=schedule.most, tma=tma)
    if schedule.most != ALWAYS:
        sizes = p.launch("selected_token_dq", tma)
        _launch_dq(p, sizes, union, tokens, up, dq, add=add, most=schedule.most, tile=False, tma=tma)


def _launch_dq(
    p: _Problem, sizes: dict[str, Any], union: index.Union | None, union_tokens: int, up: _Upstream, dq: Tensor, *,
    add: bool, tma: bool, most: int = ALWAYS, tile: bool = True, part: Tensor | None = None, of: _Chunk | None = None,
) -> None:  # fmt: skip
    """The dq kernel over the queries and heads `of` a chunk, all unless given, tile by tile or one by one."""
    of = of or _Chunk(0, p.indices.shape[0], 0, p.heads)
    together = union_tokens if union else 1
    lists = _Lists.of(p, union, tile, merge=part is not None)
    dq_kernel[(cdiv(of.rows, together), of.heads)](
        p.q, p.k, p.v, *p.descriptors(sizes["BN"], tma), *up, dq, *lists.blocks, p.where.queries,
        lists.keys, dq if part is None else part,
        p.indices.shape[0], of.first, of.head, of.heads, lists.tiles, most, lists.rest_keys,
        *p.strides, *lists.strides, p.scale,
        TB=together if tile else 1, UT=together, U=lists.width, SP=next_power_of_2(sizes["SLOTS"]),
        TILE=tile, MERGE=part is not None, ADD=add, TMA=tma, **sizes,
    )  # fmt: skip


def _run_pairs(p: _Problem, tile_rows: int) -> int:
    """Pairs of one run: long runs, so that few partial sums are written, but enough runs to fill the card."""
    tokens = tile_rows // pad_group(p.group)
    tiles = next_power_of_2(max(1, p.indices.numel() // (tokens * RUNS_WANTED)))
    return tokens * min(256, max(16, tiles))


@dataclass(frozen=True)
class _Chunk:
    """`rows` queries from `first` on and `heads` KV heads from `head` on, whose parts of dq are held together."""

    first: int
    rows: int
    head: int
    heads: int


@dataclass(frozen=True)
class _KeySums:
    """dk and dv on their way: each launch adds what a window of runs contributes, always in the order of the runs.

    Attributes:
        runs: of all pairs.
        rows: keys of one run's block, padded.
        part: fp32 [runs of a window,rows,D*], the partial sums of one window.
        sums: fp32, of the windows so far, where there are several; else what they stand in for.
        out: dk and dv.
    """

    runs: index.Runs
    rows: int
    part: tuple[Tensor, Tensor]
    sums: tuple[Tensor, Tensor]
    out: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, p: _Problem, runs: index.Runs, held: int, all_at_once: bool, out: tuple[Tensor, Tensor]) -> _KeySums:
        """Sums with room for the partial sums of `held` runs, which may be all of them."""
        rows = next_power_of_2(max(16, p.where.l_sel))
        part = tuple(torch.empty(held, rows, x.shape[-1], dtype=torch.float32, device=x.device) for x in (p.k, p.v))
        sums = out if all_at_once else tuple(torch.empty_like(x, dtype=torch.float32) for x in out)
        return cls(runs, rows, part, sums, out)  # type: ignore[arg-type]

    def add(
        self, p: _Problem, up: _Upstream, first_key: int, of: _Chunk, most_runs: int, part: Tensor | None = None
    ) -> None:
        """Add the runs of the chunk's heads, whose keys are from `first_key` on, one launch after the other; with
        `part`, which holds the chunk's parts of dq, write those too. The first chunk of each head has the head's first
        keys, and all heads end together, with the last key of all.
        """
        held, all_keys = self.part[0].shape[0], self.runs.edges.numel() - 1
        last_key = first_key + of.heads * p.where.bins
        for begin in range(0, most_runs, held):
            count = min(held, most_runs - begin)
            self._launch(p, up, (first_key, last_key), of, begin, count, part)
            is_first = first_key == of.head * p.where.bins and begin == 0
            is_last = last_key == all_keys and begin + count == most_runs
            self._reduce(p, first_key, of, begin, count, is_first, is_last)

    def _launch(
        self, p: _Problem, up: _Upstream, keys: tuple[int, int], of: _Chunk, begin: int, count: int, part: Tensor | None
    ) -> None:
        """The partial sums of `count` runs of the keys from their run `begin` on."""
        sizes = p.launch("selected_dkv" if part is None else "selected_dkv_dq")
        if part is not None:
            sizes["BN"] = self.rows
        runs = self.runs
        dkv_kernel[(count, cdiv(p.where.l_sel, sizes["BN"]))](
            p.q, p.k, p.v, *up, *self.part, runs.order, runs.edges, runs.run_edges, runs.run_key,
            p.where.blocks, p.where.queries, self.part[0] if part is None else part,
            p.indices.shape[0], p.where.keys, of.first, of.head, of.heads, *keys, begin, p.where.bins,
            *p.strides, p.scale, PAIRS=runs.pairs, ROWS=self.rows, DQ=part is not None, **sizes,
        )  # fmt: skip

    def _reduce(self, p: _Problem, first_key: int, of: _Chunk, begin: int, count: int, first: bool, last: bool) -> None:
        """Add what the launch left to the sums; the last one makes dk and dv of them."""
        keys, sizes = min(32, self.rows), [x.shape[-1] for x in self.out]
        columns = [min(64, next_power_of_2(width)) for width in sizes]
        pieces = [self.rows // keys * cdiv(width, at_once) for width, at_once in zip(sizes, columns, strict=True)]
        reduce_kernel[(p.where.bins, of.heads, sum(pieces))](
            *self.part, *self.sums, *self.out, self.runs.run_edges, p.where.blocks, p.where.bins, of.head, first_key,
            begin, count, H=p.heads, DK=sizes[0], DV=sizes[1], LB=p.where.l_sel, ROWS=self.rows, BN=keys,
            BDK=columns[0], BDV=columns[1], PIECES=pieces[0], FIRST=first, LAST=last,
        )  # fmt: skip


def _backward_kv(p: _Problem, up: _Upstream, dk: Tensor, dv: Tensor) -> None:
    """dk and dv by runs of the queries of each block."""
    keys = p.heads * p.where.bins
    pairs = _run_pairs(p, p.launch("selected_dkv")["BM"])
    runs = index.runs(index.pair_keys(p.indices, p.where), keys, pairs, keys)
    most_runs, whole = runs.run_key.numel(), _Chunk(0, p.indices.shape[0], 0, p.heads)
    held = min(RUNS_HELD, most_runs)
    _KeySums.of(p, runs, held, held == most_runs, (dk, dv)).add(p, up, 0, whole, most_runs)


def _backward_gather(
    p: _Problem, schedule: Schedule, up: _Upstream, dq: Tensor, dk: Tensor, dv: Tensor, add: bool
) -> None:
    """The pairs of the tiles' unions as in the other schedules; the others' dq beside their dk and dv, by chunks of
    queries and heads.
    """
    tma = p.copy_engine()
    tile, rows, bins = p.launch("selected_merge_dq", tma), p.indices.shape[0], p.where.bins
    tokens = tile["BM"] // tile["GP"]
    chunk, heads = min(cdiv(schedule.chunk, tokens), cdiv(rows, tokens)) * tokens, min(schedule.heads, p.heads)
    union = index.union(p.indices, p.where, tokens, schedule.dense_from, schedule.most, chunk)
    pairs, keys = _run_pairs(p, p.launch("selected_dkv")["BM"]), p.heads * bins
    runs = index.runs(union.keys, union.rest_keys + keys, pairs, p.heads * p.where.reachable(chunk) + keys)
    held, all_pairs = chunk * heads * p.indices.shape[-1], p.indices.numel()
    part = p.q.new_empty(held * p.group, p.q.shape[-1])
    of_chunk, of_unions = held // pairs + min(held, heads * bins), all_pairs // pairs + min(all_pairs, keys)
    at_once = min(RUNS_HELD, max(of_chunk, cdiv(of_unions, 2)))  # half: whichever has many runs, the other has few
    sums = _KeySums.of(p, runs, at_once, False, (dk, dv))
    _launch_dq(p, tile, union, tokens, up, dq, add=add, tma=tma, most=WHOLE)
    for i, first in enumerate(range(0, rows, chunk)):
        for head in range(0, p.heads, heads):
            of = _Chunk(first, min(chunk, rows - first), head, min(heads, p.heads - head))
            sums.add(p, up, i * keys + head * bins, of, of_chunk, part)
            _launch_dq(p, tile, union, tokens, up, dq, add=add, tma=tma, part=part, of=of)
    sums.add(p, up, union.rest_keys, _Chunk(0, rows, 0, p.heads), of_unions)


# --- autograd ---


class _SelectedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, block_indices, config, scale, cu_seqlens, q_start):  # type: ignore[no-untyped-def]
        o, lse = forward(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
        ctx.save_for_backward(q, k, v, o, lse, block_indices, cu_seqlens, q_start)
        ctx.config, ctx.scale = config, scale
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    def backward(ctx, do, _):  # type: ignore[no-untyped-def]
        q, k, v, o, lse, block_indices, cu_seqlens, q_start = ctx.saved_tensors
        grads = gradients(do, o, lse, q, k, v, block_indices, ctx.config, ctx.scale, cu_seqlens, q_start)
        return *grads, None, None, None, None, None


def gradients(
    do: Tensor, o: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, *where: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """`backward` for these results of `forward`."""
    return backward(do, q, k, v, row_stats(do, o, lse), block_indices, *where)


def selected_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_indices: Tensor,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`forward` with gradients of q, k and v: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    return _SelectedAttention.apply(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
