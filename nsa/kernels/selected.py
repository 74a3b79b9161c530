"""Selected attention: every query attends to the positions up to its own in the blocks it chose.

    forward(q, k, v, block_indices, config, scale, ...) -> o, lse
    backward(do, q, k, v, lse, delta, block_indices, config, scale, ...) -> dq, dk, dv
    selected_attention(...) -> o, with gradients

The kernels are in `selected_fwd` and `selected_bwd`, the index structures in `index`. How the work is shared is a
`Schedule`; which one is chosen from shapes alone, and where it depends on the data (how many blocks neighbouring
queries share) the kernels decide tile by tile on the device. The host never waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels import index
from nsa.kernels.common import LOG2E, dot_precision, pad_group, row_dot, rows_last, split_dim
from nsa.kernels.configs import config_for
from nsa.kernels.selected_bwd import dkv_kernel, dq_kernel, reduce_kernel
from nsa.kernels.selected_fwd import forward_kernel, gather_kernel

ALWAYS = 1 << 30
"""A union limit that every tile meets."""

NEVER = -1
"""A union limit that no tile meets: no union is built."""


@dataclass(frozen=True)
class Schedule:
    """How the queries are shared among programs.

    Attributes:
        most: a tile of neighbouring queries whose union has at most so many blocks is computed as one; the queries
            of the others one by one. Unused with `dense_from`.
        dense_from: 0, or: blocks that at least so many queries of a tile share are read by the tile, the others by
            runs of the queries that chose them (schedule `gather`).
        chunk: queries whose partial results are held at once by `gather`.
        pairs: (query, block) pairs of one run.
    """

    most: int = ALWAYS
    dense_from: int = 0
    chunk: int = 8192
    pairs: int = 128


GATHER_LARGEST_BLOCK = 128
"""The gather kernel keeps a whole block of keys and values on chip."""


def choose_schedule(group: int, slots: int, config: NSAConfig) -> Schedule:
    """The schedule for these shapes; where the overlap of neighbours matters, the device decides by tile.

    The limits are from H200 measurements (docs/kernels.md): at group size 16 the tile kernel wins below a union of
    about 42 of 64 blocks; from group size 8 down the gathered schedule wins at any overlap.
    """
    tokens = max(1, 64 // pad_group(group))
    if tokens == 1:
        return Schedule(most=NEVER)
    if group <= 8 and config.l_sel <= GATHER_LARGEST_BLOCK:
        return Schedule(dense_from=max(2, tokens // 4))
    return Schedule(most=int(tokens * slots * 0.65))


@dataclass(frozen=True)
class _Problem:
    """The flattened operands of one call: q [N,Hq,Dk], k [M,Hkv,Dk], v [M,Hkv,Dv], indices [N,Hkv,slots]."""

    q: Tensor
    k: Tensor
    v: Tensor
    indices: Tensor
    where: index.Places
    scale: float

    @property
    def heads(self) -> int:
        return self.k.shape[1]

    @property
    def group(self) -> int:
        return self.q.shape[1] // self.heads

    @property
    def strides(self) -> tuple[int, ...]:
        """Token and head strides of q, k and v."""
        return (*self.q.stride()[:2], *self.k.stride()[:2], *self.v.stride()[:2])

    def launch(self, kernel: str) -> dict[str, Any]:
        """Compile-time arguments that all kernels share, with the tile and the warps of `kernel`."""
        tile = config_for(kernel, self.q, self.v).launch(pad_group(self.group))
        (dk0, dk1), (dv0, dv1) = split_dim(self.q.shape[-1]), split_dim(self.v.shape[-1])
        block = max(16, triton.next_power_of_2(self.where.l_sel))
        return {
            "H": self.heads, "G": self.group, "GP": pad_group(self.group), "LB": self.where.l_sel,
            "DK": self.q.shape[-1], "DK0": dk0, "DK1": dk1, "DV": self.v.shape[-1], "DV0": dv0, "DV1": dv1,
            "SLOTS": self.indices.shape[-1], "PREC": dot_precision(self.q.dtype),
            **tile, "BN": min(tile["BN"], block),
        }  # fmt: skip


def _problem(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, scale: float,
    cu_seqlens: Tensor | None, q_start: Tensor | None,
) -> _Problem:  # fmt: skip
    where = index.places(q, k, config.l_sel, cu_seqlens, q_start)
    flat = (rows_last(x).flatten(0, 1) for x in (q, k, v, block_indices.to(torch.int32)))
    return _Problem(*flat, where, scale)


# --- forward ---


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
) -> tuple[Tensor, Tensor]:
    """Attention of q [B,T,Hq,Dk] to the blocks of k [B,S,Hkv,Dk], v [B,S,Hkv,Dv].

    Args:
        block_indices: int [B,T,Hkv,slots], blocks of the query's own sequence; -1 anywhere is padding.
        cu_seqlens: borders of packed sequences, int32 [N+1]; B must be 1.
        q_start: int [B], position of each batch entry's first query; excludes `cu_seqlens`.
        schedule: None for the one that `choose_schedule` names.

    Returns:
        o [B,T,Hq,Dv]; lse fp32 [B,T,Hq], natural logarithm. A query without blocks has o = 0 and lse = -inf.
    """
    o = q.new_empty(*q.shape[:3], v.shape[-1])
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if not o.numel():
        return o, lse
    if not block_indices.shape[-1]:
        return o.zero_(), lse.fill_(float("-inf"))
    problem = _problem(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
    schedule = schedule or choose_schedule(problem.group, block_indices.shape[-1], config)
    if schedule.dense_from:
        _forward_gather(problem, schedule, o, lse)
    else:
        _forward_mixed(problem, schedule, o, lse)
    return o, lse


def _forward_mixed(p: _Problem, schedule: Schedule, o: Tensor, lse: Tensor) -> None:
    """Tiles with small unions by the tile kernel, the queries of the others by the token kernel."""
    tile = p.launch("selected_tile_forward")
    tokens, union = tile["BM"] // tile["GP"], None
    if schedule.most != NEVER:
        union = index.union(p.indices, p.where, tokens)
        _launch_forward(p, tile, union, tokens, o, lse, most=schedule.most)
    if schedule.most != ALWAYS:
        token = p.launch("selected_token_forward")
        _launch_forward(p, token, union, tokens, o, lse, most=schedule.most, tile=False)


def _forward_gather(p: _Problem, schedule: Schedule, o: Tensor, lse: Tensor) -> None:
    """Widely shared blocks by the tile kernel; the others by the gather kernel, chunk of queries by chunk."""
    tile, gather = p.launch("selected_tile_forward"), p.launch("selected_gather_forward")
    gather["BN"] = max(16, triton.next_power_of_2(p.where.l_sel))
    rows, slots, tokens = p.indices.shape[0], p.indices.shape[-1], tile["BM"] // tile["GP"]
    chunk = min(triton.cdiv(schedule.chunk, tokens), triton.cdiv(rows, tokens)) * tokens
    union = index.union(p.indices, p.where, tokens, schedule.dense_from, chunk)
    runs = index.runs(union.keys, union.rest_keys, schedule.pairs)
    held = chunk * p.heads * slots
    part = p.v.new_empty(held * p.group, p.v.shape[-1])
    part_lse = torch.empty(held * p.group, dtype=torch.float32, device=part.device)
    most_runs = held // schedule.pairs + min(held, p.heads * p.where.bins)
    for i, first in enumerate(range(0, rows, chunk)):
        gather_kernel[(most_runs,)](
            p.q, p.k, p.v, part, part_lse, runs.order, runs.edges, runs.run_edges, runs.run_key, p.where.blocks,
            p.where.keys, first, i, p.where.bins, *p.strides, p.scale * LOG2E.value, PAIRS=schedule.pairs, **gather,
        )  # fmt: skip
        _launch_forward(p, tile, union, tokens, o, lse, part=(part, part_lse), span=(first, min(chunk, rows - first)))


def _launch_forward(
    p: _Problem, sizes: dict[str, Any], union: index.Union | None, union_tokens: int, o: Tensor, lse: Tensor, *,
    most: int = ALWAYS, tile: bool = True, part: tuple[Tensor, Tensor] | None = None, span: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    """The tile kernel or the token kernel over the queries `span` = (first, count), all unless given."""
    first, rows = span or (0, p.indices.shape[0])
    tokens = union_tokens if tile else 1
    blocks, strides = (union.starts, (0, 0)) if tile else (p.indices, p.indices.stride()[:2])
    slots, members, count = sizes["SLOTS"], blocks if union is None else union.members, blocks if union is None else union.count
    held, held_lse = part or (o, lse)
    forward_kernel[(triton.cdiv(rows, tokens), p.heads)](
        p.q, p.k, p.v, o, lse, blocks, members, count, p.where.queries, blocks if part is None else union.keys, held, held_lse,
        p.indices.shape[0], p.where.keys, first, count.shape[-1], most, 0 if part is None else union.rest_keys,
        *p.strides, *strides, p.scale * LOG2E.value,
        TB=tokens, UT=union_tokens, U=blocks.shape[-1], SP=triton.next_power_of_2(slots), TILE=tile, MERGE=part is not None,
        **sizes,
    )  # fmt: skip


# --- backward ---


def backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lse: Tensor,
    delta: Tensor,
    block_indices: Tensor,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
    gate: Tensor | None = None,
    dq: Tensor | None = None,
    schedule: Schedule | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, bitwise the same in every run.

    Args:
        do: gradient of `gate * o`, [B,T,Hq,Dv].
        q, k, v, lse, block_indices, config, scale, cu_seqlens, q_start: as in `forward`, with its lse.
        delta: rowsum(do * o) [B,T,Hq] fp32, without the gate.
        gate: [B,T,Hq], a column of contiguous gates; None is 1.
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
    schedule = schedule or choose_schedule(problem.group, block_indices.shape[-1], config)
    gating = (lse, 0) if gate is None else (gate, gate.stride(-1))
    upstream = (do.contiguous(), lse, delta, gating[0])
    flags = {"GATED": gate is not None}
    _backward_q(problem, schedule, upstream, gating[1], dq, flags | {"ADD": added})
    _backward_kv(problem, schedule, upstream, gating[1], dk, dv, flags)
    return dq, dk, dv


def _backward_q(
    p: _Problem, schedule: Schedule, upstream: tuple[Tensor, ...], s_gate: int, dq: Tensor, flags: dict[str, bool]
) -> None:
    """dq by the tile kernel where unions are small, else by the token kernel."""
    sizes = p.launch("selected_tile_dq")
    rows, tokens, union = p.indices.shape[0], sizes["BM"] // sizes["GP"], None
    if schedule.most != NEVER:
        union = index.union(p.indices, p.where, tokens)
        _launch_dq(p, sizes, union, tokens, upstream, s_gate, dq, schedule.most, True, flags)
    if schedule.most != ALWAYS:
        sizes = p.launch("selected_token_dq")
        _launch_dq(p, sizes, union, tokens, upstream, s_gate, dq, schedule.most, False, flags)


def _launch_dq(
    p: _Problem, sizes: dict[str, Any], union: index.Union | None, union_tokens: int, upstream: tuple[Tensor, ...],
    s_gate: int, dq: Tensor, most: int, tile: bool, flags: dict[str, bool],
) -> None:  # fmt: skip
    do, lse, delta, gate = upstream
    rows, tokens = p.indices.shape[0], union_tokens if tile else 1
    blocks, strides = (union.starts, (0, 0)) if tile else (p.indices, p.indices.stride()[:2])
    members, count = (blocks, blocks) if union is None else (union.members, union.count)
    dq_kernel[(triton.cdiv(rows, tokens), p.heads)](
        p.q, p.k, p.v, do, lse, delta, gate, dq, blocks, members, count, p.where.queries,
        rows, p.where.keys, count.shape[-1], most, *p.strides, *strides, s_gate, p.scale,
        TB=tokens, UT=union_tokens, U=blocks.shape[-1], TILE=tile, **flags, **sizes,
    )  # fmt: skip


def _backward_kv(
    p: _Problem, schedule: Schedule, upstream: tuple[Tensor, ...], s_gate: int, dk: Tensor, dv: Tensor, flags: dict[str, bool]
) -> None:
    """dk and dv by runs of the queries of each block, then the sum of the runs."""
    do, lse, delta, gate = upstream
    sizes = p.launch("selected_dkv")
    pairs = sizes["BM"] // sizes["GP"] * 64
    n_keys = p.heads * p.where.bins
    runs = index.runs(index.pair_keys(p.indices, p.where), n_keys, pairs)
    sub = triton.cdiv(p.where.l_sel, sizes["BN"])
    rows = sub * sizes["BN"]
    part_k, part_v = (
        torch.empty(runs.run_key.numel(), rows, x.shape[-1], dtype=torch.float32, device=x.device) for x in (dk, dv)
    )
    dkv_kernel[(runs.run_key.numel(), sub)](
        p.q, p.k, p.v, do, lse, delta, gate, part_k, part_v,
        runs.order, runs.edges, runs.run_edges, runs.run_key, p.where.blocks, p.where.queries,
        p.indices.shape[0], p.where.keys, p.where.bins, n_keys, *p.strides, s_gate, p.scale,
        PAIRS=pairs, **flags, **sizes,
    )  # fmt: skip
    for part, x in ((part_k, dk), (part_v, dv)):
        width = x.shape[-1]
        columns = min(64, triton.next_power_of_2(width))
        reduce_kernel[(p.where.bins, p.heads, triton.cdiv(p.where.l_sel, sizes["BN"]) * triton.cdiv(width, columns))](
            part, x, runs.run_edges, p.where.blocks, p.where.bins, 1,
            H=p.heads, D=width, LB=p.where.l_sel, ROWS=rows, BN=sizes["BN"], BD=columns,
        )  # fmt: skip


# --- autograd ---


class _SelectedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, block_indices, config, scale, cu_seqlens, q_start):  # type: ignore[no-untyped-def]
        o, lse = forward(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
        ctx.save_for_backward(q, k, v, o, lse, block_indices, cu_seqlens, q_start)
        ctx.config, ctx.scale = config, scale
        return o

    @staticmethod
    def backward(ctx, do):  # type: ignore[no-untyped-def]
        q, k, v, o, lse, block_indices, cu_seqlens, q_start = ctx.saved_tensors
        grads = backward(
            do, q, k, v, lse, row_dot(do, o), block_indices, ctx.config, ctx.scale, cu_seqlens, q_start
        )
        return *grads, None, None, None, None, None


def selected_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_indices: Tensor,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None = None,
    q_start: Tensor | None = None,
) -> Tensor:
    """`forward` with gradients of q, k and v: o [B,T,Hq,Dv]."""
    return _SelectedAttention.apply(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
