"""The gradient of selected attention; the vocabulary and the schedules are those of `forward`.

dq goes query by query or tile by tile, as the forward does, dk and dv by `backward_kv`; in the schedule `gather` the
pairs that are not in the tile's union get their part of dq from the segment that computes their dk and dv, which saves
a third of the products. Nothing is added atomically, so every call gives the same bits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.backward_preprocess import load_stats
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2
from nsa.kernels.common.tiles import LOG2E, add_product, dot_rows, load_pair, store_pair, zeros_pair
from nsa.kernels.ranges.key_ranges import Borders
from nsa.kernels.selected import inverted_index
from nsa.kernels.selected.addresses import MERGE_STAGES, block_of, key_rows, list_of, load_block, mine, rows_of
from nsa.kernels.selected.backward_kv import KeySums, Upstream, backward_kv, held_at_once, segment_pairs
from nsa.kernels.selected.inverted_index import FAR, Union
from nsa.kernels.selected.tile_scheduler import (
    ALWAYS,
    WHOLE,
    Chunk,
    Lists,
    Problem,
    Schedule,
    by_tile_or_token,
    problem_of,
)


@triton.jit
def _free_blocks(p_blocks, n_blocks, b_limit, LB: tl.constexpr, U: tl.constexpr):
    """How many of the union's blocks, which ascend, end at or before every row's own key: nothing to mask there."""
    o_u = tl.arange(0, U)
    b_start = tl.load(p_blocks + o_u, mask=o_u < n_blocks, other=FAR)
    return tl.sum((b_start + LB <= tl.min(b_limit, 0) + 1).to(tl.int32), 0)


@triton.jit
def _rest_of(p_keys, o_pair, m_row, rest_keys, SLOTS: tl.constexpr, SP: tl.constexpr):
    """SLOTS if a slot of some row was left to segments, else 0, to skip the loop over them."""
    o_slot = tl.arange(0, SP)
    m_slot = m_row[:, None] & (o_slot < SLOTS)[None, :]
    m_slot = tl.load(p_keys + o_pair[:, None] + o_slot[None, :], mask=m_slot, other=rest_keys) < rest_keys
    return tl.max(tl.max(m_slot.to(tl.int32), 1), 0) * SLOTS


@launched
@triton.jit(do_not_specialize=["N", "i_first", "first_head", "part_heads", "n_tiles", "most", "rest_keys"])
def dq_kernel(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_do, p_stats, p_dq, p_blocks, p_members, p_count,
    p_queries, p_keys, p_part, N, i_first, first_head, part_heads, n_tiles, most, rest_keys,
    s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_it, s_ih, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    LB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TB: tl.constexpr, UT: tl.constexpr, SLOTS: tl.constexpr,
    SP: tl.constexpr, U: tl.constexpr, TILE: tl.constexpr, MERGE: tl.constexpr, PREC: tl.constexpr, ADD: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """dq of UT queries of one KV head, from query i_first and `first_head` on; who computes what is decided as in
    `forward.forward_kernel`. With MERGE p_part holds the parts of these queries and of `part_heads` heads.
    """
    i_union, i_h = tl.program_id(0) + i_first // UT, tl.program_id(1) + first_head
    o_union = i_h * n_tiles + i_union
    n_blocks, m_mine = mine(p_count + o_union, most, SLOTS, TILE, MERGE)
    if not m_mine:
        return
    for i in range(1 if TILE else tl.minimum(UT, N - i_union * UT)):
        o_tok, o_g, o_n, m_row = rows_of(i_union * UT + i, N, G, GP, BM, TB)
        o_row = o_n * (H * G) + i_h * G + o_g
        o_q = o_n * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
        b_q0, b_q1 = load_pair(p_q, o_q, m_row, DK, True)  # [BM, DK]
        b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, True)  # [BM, DV]
        b_lse, b_delta, b_sign = load_stats(p_stats, o_row, m_row)
        b_limit = tl.load(p_queries + 2 * N + o_n)
        last_key = tl.max(b_limit, 0)
        o_list, first = list_of(p_queries, i_union * UT + i, i_h, o_union, N, s_it, s_ih, U, TILE)
        SUB: tl.constexpr = (LB + BN - 1) // BN
        b_dq0, b_dq1 = zeros_pair(BM, DK)
        n_free = 0
        if TILE and LB % BN == 0:
            n_free = _free_blocks(p_blocks + o_list, n_blocks, b_limit, LB, U)
        for CAUSAL in tl.static_range(0 if TILE and LB % BN == 0 else 1, 2):
            for j in range(n_free * SUB if CAUSAL else 0, n_blocks * SUB if CAUSAL else n_free * SUB):  # BN keys
                start, b_last = block_of(
                    p_blocks + o_list, p_members + o_list, j // SUB, first, b_limit, o_tok, LB, TILE
                )
                o_key, o_at = key_rows(start, last_key, j % SUB, BN, LB)
                first_row = start + j % SUB * BN
                b_k0, b_k1 = load_block(p_k, d_k0, d_k1, first_row, o_at, i_h, s_kt, s_kh, DK, TMA)
                b_v0, b_v1 = load_block(p_v, d_v0, d_v1, first_row, o_at, i_h, s_vt, s_vh, DV, TMA)
                b_s = dot_rows(b_q0, b_q1, b_k0, b_k1, DK, PREC) * (scale * LOG2E)  # [BM, BN]
                if CAUSAL:
                    b_p = tl.exp2(b_s - b_lse[:, None])
                else:
                    b_p = tl.exp2(b_s - tl.where(b_last < 0, float("inf"), b_lse)[:, None])
                b_ds = b_p * (dot_rows(b_do0, b_do1, b_v0, b_v1, DV, PREC) - b_delta[:, None])
                if CAUSAL:
                    b_ds = tl.where(o_key[None, :] <= b_last[:, None], b_ds, 0.0)  # as in `ranges.backward`
                b_dq0, b_dq1 = add_product(b_dq0, b_dq1, b_ds.to(b_k0.dtype), b_k0, b_k1, DK, PREC)
        b_f = (b_sign * scale)[:, None]
        b_dq0 *= b_f
        b_dq1 *= b_f
        if MERGE:  # the gathered parts of dq
            o_pair = (o_n * H + i_h) * SLOTS
            o_part = ((o_n - i_first) * part_heads + i_h - first_head) * SLOTS
            for j in tl.range(0, _rest_of(p_keys, o_pair, m_row, rest_keys, SLOTS, SP), num_stages=MERGE_STAGES):
                m_j = tl.load(p_keys + o_pair + j, mask=m_row, other=rest_keys) < rest_keys  # [BM]
                b_part0, b_part1 = load_pair(p_part, ((o_part + j) * G + o_g) * DK, m_j, DK, True)
                b_dq0 += b_part0.to(tl.float32)
                if b_dq0.shape[1] < DK:
                    b_dq1 += b_part1.to(tl.float32)
        store_pair(p_dq, o_row * DK, m_row, b_dq0, b_dq1, DK, ADD)


# --- launching ---


def selected_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, stats: Tensor, block_indices: Tensor, config: NSAConfig, scale: float,
    cu_seqlens: Borders = None, q_start: Tensor | None = None, dq: Tensor | None = None,
    schedule: Schedule | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v, bitwise the same in every run.

    Args:
        do: gradient of `o`, or of what a gate makes of it, [B,T,Hq,Dv].
        q, k, v, block_indices, config, scale, cu_seqlens, q_start: as in `selected_forward`.
        stats: what `backward_preprocess` gives of the forward's output, or `combine.stats` of that under a gate,
            contiguous [B,T,Hq].
        dq: contiguous [B,T,Hq,Dk]; given, the gradient is added to it instead of a new tensor.
        schedule: None for the one that `choose_schedule` names.
    """
    added = dq is not None
    dk, dv = k.new_empty(k.shape), v.new_empty(v.shape)
    if not q.numel() or not block_indices.numel():
        return (q.new_zeros(q.shape) if dq is None else dq), dk.zero_(), dv.zero_()
    dq = q.new_empty(q.shape) if dq is None else dq
    problem = problem_of(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
    schedule = schedule or problem.schedule("selected_tile_dq", backward=True)
    upstream = do.contiguous(), stats
    if schedule.dense_from:
        _backward_gather(problem, schedule, upstream, dq, dk, dv, added)
    else:
        by_tile_or_token(problem, schedule, "dq", partial(_launch_dq, up=upstream, dq=dq, add=added))
        backward_kv(problem, upstream, dk, dv)
    return dq, dk, dv


def _launch_dq(
    p: Problem, sizes: dict[str, Any], union: Union | None, union_tokens: int, *, up: Upstream, dq: Tensor,
    add: bool, most: int = ALWAYS, tile: bool = True, part: Tensor | None = None, of: Chunk | None = None,
) -> None:  # fmt: skip
    """The dq kernel over the queries and heads `of` a chunk, all unless given, tile by tile or one by one."""
    of = of or Chunk(0, p.indices.shape[0], 0, p.heads)
    together = union_tokens if union else 1
    lists, tma = Lists.of(p, union, tile), p.by_tma(tile)
    dq_kernel[(cdiv(of.rows, together), of.heads)](
        p.q, p.k, p.v, *p.descriptors(sizes["BN"], tma), *up, dq, *lists.blocks, p.where.queries,
        lists.rest, dq if part is None else part,
        p.indices.shape[0], of.first, of.head, of.heads, lists.tiles, most, lists.rest_keys,
        *p.strides, *lists.strides, p.scale,
        TB=together if tile else 1, UT=together, U=lists.width, SP=next_power_of_2(sizes["SLOTS"]),
        TILE=tile, MERGE=part is not None, ADD=add, TMA=tma, **sizes,
    )  # fmt: skip


def _backward_gather(
    p: Problem, schedule: Schedule, up: Upstream, dq: Tensor, dk: Tensor, dv: Tensor, add: bool
) -> None:
    """The pairs of the tiles' unions as in the other schedules; the others' dq beside their dk and dv, by chunks of
    queries and heads.
    """
    tile, rows, bins = p.launch("selected_merge_dq", p.tma), p.indices.shape[0], p.where.bins
    tokens = tile["BM"] // tile["GP"]
    chunk, heads = min(cdiv(schedule.chunk, tokens), cdiv(rows, tokens)) * tokens, min(schedule.heads, p.heads)
    union = inverted_index.union(p.indices, p.where, tokens, schedule.dense_from, schedule.most, chunk)
    pairs, keys = segment_pairs(p, p.launch("selected_dkv")["BM"]), p.heads * bins
    segments = inverted_index.segments(
        union.keys, union.rest_keys + keys, pairs, p.heads * p.where.reachable(chunk) + keys
    )
    held, all_pairs = chunk * heads * p.indices.shape[-1], p.indices.numel()
    part = p.q.new_empty(held * p.group, p.q.shape[-1])
    of_chunk, of_unions = held // pairs + min(held, heads * bins), all_pairs // pairs + min(all_pairs, keys)
    at_once = held_at_once(max(of_chunk, cdiv(of_unions, 2)))  # half: whichever has many, the other has few
    sums = KeySums.of(p, segments, at_once, False, (dk, dv))
    launch = partial(_launch_dq, p, tile, union, tokens, up=up, dq=dq, add=add)
    launch(most=WHOLE)
    for i, first in enumerate(range(0, rows, chunk)):
        for head in range(0, p.heads, heads):
            of = Chunk(first, min(chunk, rows - first), head, min(heads, p.heads - head))
            sums.add(p, up, i * keys + head * bins, of, of_chunk, part)
            launch(part=part, of=of)
    sums.add(p, up, union.rest_keys, Chunk(0, rows, 0, p.heads), of_unions)
