"""Forward kernels of selected attention.

Three ways to share the work, which give the same result:

    token   each query by itself, over its own blocks. Bound by the loads of K and V.
    tile    one program for a tile of neighbouring queries, over the union of their blocks; a row is masked where
            its query did not choose the block. One load of a block serves all who share it. Where the union is
            large, the tile's part ends with the blocks that two queries share, and each query goes on alone.
    gather  one program for a segment of the queries that chose one block: K and V stay, Q is gathered, and a partial
            result goes to a scratch. The tile kernel, whose union then holds only the widely shared blocks, adds
            the partials up. Its cost does not depend on the number of KV heads, so it serves small groups.

Rows are as in `addresses`. Logits are in units of log2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels import combine
from nsa.kernels.combine import gated_sum
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2
from nsa.kernels.common.softmax import add_keys, begin, end, not_a_number, online, only, out_of_range, resume
from nsa.kernels.common.tiles import (
    LOG2E,
    LOW,
    add_product,
    dot_rows,
    load_pair,
    store_pair,
    zeros_pair,
)
from nsa.kernels.ranges.key_ranges import Borders
from nsa.kernels.selected import chunked_index, inverted_index
from nsa.kernels.selected.addresses import (
    MERGE_STAGES,
    block_of,
    key_rows,
    list_of,
    load_block,
    load_pairs,
    mine,
    query_of,
    rows_of,
    segment_of,
)
from nsa.kernels.selected.inverted_index import FAR, LEFT_OUT
from nsa.kernels.selected.tile_scheduler import (
    ALWAYS,
    NEVER,
    WHOLE,
    Chunk,
    Lists,
    Problem,
    Schedule,
    by_tile_or_token,
    problem_of,
)


@triton.jit
def close_up(p_list, SLOTS: tl.constexpr, SP: tl.constexpr):
    """Bring the blocks of a list before its padding; returns how many they are. Padding costs more than a block."""
    o_slot = tl.arange(0, SP)
    b_block = tl.load(p_list + o_slot, mask=o_slot < SLOTS, other=-1)
    m_block = b_block >= 0
    tl.debug_barrier()
    tl.store(p_list + tl.cumsum(m_block.to(tl.int32), 0) - 1, b_block, mask=m_block)
    tl.debug_barrier()
    return tl.sum(m_block.to(tl.int32), 0)


@triton.jit
def add_partials(
    b_m, b_l, b_o0, b_o1, p_lists, p_part, p_part_lse, o_n, i_h, i_first, first_head, part_heads, o_g, m_row,
    H: tl.constexpr, G: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr, DV: tl.constexpr, ONLINE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Merge each row's gathered results: pairs o_pair [BM] + slot, scratch rows (o_part + slot) * G + g."""
    o_pair = (o_n * H + i_h) * SLOTS
    o_part = ((o_n - i_first) * part_heads + i_h - first_head) * SLOTS
    o_slot = tl.arange(0, SP)
    m_slot = m_row[:, None] & (o_slot < SLOTS)[None, :]
    m_slot = tl.load(p_lists + o_pair[:, None] + o_slot[None, :], mask=m_slot, other=-1) >= 0  # [BM, SP]
    if ONLINE:
        o_lse = (o_part[:, None] + o_slot[None, :]) * G + o_g[:, None]
        b_new = tl.maximum(b_m, tl.max(tl.load(p_part_lse + o_lse, mask=m_slot, other=LOW), 1))
        b_a = tl.exp2(b_m - b_new)
        b_m, b_l, b_o0, b_o1 = b_new, b_l * b_a[:, None], b_o0 * b_a[:, None], b_o1 * b_a[:, None]
    for i in tl.range(0, tl.max(tl.max(m_slot.to(tl.int32), 1), 0) * SLOTS, num_stages=STAGES):
        m_i = tl.load(p_lists + o_pair + i, mask=m_row, other=-1) >= 0  # [BM]
        o_i = (o_part + i) * G + o_g
        b_w = tl.load(p_part_lse + o_i, mask=m_i, other=LOW)
        b_w = tl.where(m_i, tl.exp2(b_w - b_m), 0.0)
        b_l += (b_w / b_l.shape[1])[:, None]
        b_part0, b_part1 = load_pair(p_part, o_i * DV, m_i, DV, True)
        b_o0 += b_part0.to(tl.float32) * b_w[:, None]
        if b_o0.shape[1] < DV:
            b_o1 += b_part1.to(tl.float32) * b_w[:, None]
    return b_m, b_l, b_o0, b_o1


@triton.jit
def _sums_so_far(
    p_part, p_part_lse, o_n, i_h, o_g, m_row, H: tl.constexpr, G: tl.constexpr, BM: tl.constexpr, DV: tl.constexpr,
    RESUME: tl.constexpr, ONLINE: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """The sums of rows so far: of no key, or with RESUME of what a token's tile left in p_part, p_part_lse."""
    if RESUME:
        o_out = o_n * (H * G) + i_h * G + o_g
        b_lse = tl.load(p_part_lse + o_out, mask=m_row, other=float("-inf"))
        b_o0, b_o1 = load_pair(p_part, o_out * DV, m_row, DV, True)
        b_m, b_l, b_o0, b_o1 = resume(b_lse, b_o0, b_o1, ONLINE, AGAIN)
    else:
        b_m, b_l, b_o0, b_o1 = begin(BM, DV, ONLINE, AGAIN)
    return b_m, b_l, b_o0, b_o1


@triton.jit
def _add_blocks(
    b_m, b_l, b_o0, b_o1, b_q0, b_q1, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_blocks, p_members,
    last_key, s_kt, s_kh, s_vt, s_vh, scale, first, i_h, n_blocks, b_limit, o_tok,
    DK: tl.constexpr, DV: tl.constexpr, LB: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, ONLINE: tl.constexpr,
    AGAIN: tl.constexpr, STAGES: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Add n_blocks blocks to the sums of rows, of which none reads beyond last_key.

    AGAIN: the second time, which is rare, and must not need the most registers; without values that no row reads.
    """
    SUB: tl.constexpr = (LB + BN - 1) // BN
    for i in tl.range(0, n_blocks * SUB, num_stages=STAGES):
        start, b_last = block_of(p_blocks, p_members, i // SUB, first, b_limit, o_tok, LB, TILE)
        o_key, o_row = key_rows(start, last_key, i % SUB, BN, LB)
        first_row = start + i % SUB * BN
        b_k0, b_k1 = load_block(p_k, d_k0, d_k1, first_row, o_row, i_h, s_kt, s_kh, DK, TMA)
        b_v0, b_v1 = load_block(p_v, d_v0, d_v1, first_row, o_row, i_h, s_vt, s_vh, DV, TMA)
        if AGAIN and (TMA and TILE):  # Triton before 3.3 chains no operators
            b_v0, b_v1 = only(b_v0, o_key <= last_key), only(b_v1, o_key <= last_key)
        b_s = dot_rows(b_q0, b_q1, b_k0, b_k1, DK, PREC) * scale  # [BM, BN]
        m_s = o_key[None, :] <= b_last[:, None]
        b_m, b_l, b_o0, b_o1 = add_keys(b_m, b_l, b_o0, b_o1, b_s, m_s, b_v0, b_v1, DV, True, ONLINE or AGAIN, PREC)
    return b_m, b_l, b_o0, b_o1


@launched
@triton.jit(do_not_specialize=["N", "i_first", "first_head", "part_heads", "n_tiles", "most"])
def forward_kernel(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_o, p_lse, p_cmp, p_win, p_gates, p_sum, p_blocks, p_members, p_count,
    p_queries, p_lists, p_part, p_part_lse, N, i_first, first_head, part_heads, n_tiles, most,
    s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_it, s_ih, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, LB: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TB: tl.constexpr, UT: tl.constexpr, SLOTS: tl.constexpr,
    SP: tl.constexpr, U: tl.constexpr, TILE: tl.constexpr, MERGE: tl.constexpr, SHARED: tl.constexpr,
    ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr, SUM: tl.constexpr, KEEP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """UT neighbouring queries and one KV head: over the union of their blocks (TILE, UT = TB), or one by one (TB = 1).
    The first are query i_first and `first_head`; with MERGE p_part holds the results of `part_heads` heads.

    KEEP stores o; SUM the gated sum of o_cmp, o and o_win in p_sum. SHARED: of unions that blocks were left out of, the
    tile kernel leaves o and lse, and the token kernel goes on from there, which it finds in p_part and p_part_lse.
    p_blocks: the union's first keys [H,n_tiles,U] (TILE) or the block indices [N,H,SLOTS].
    """
    RESUME: tl.constexpr = SHARED and not TILE
    i_union, i_h = tl.program_id(0) + i_first // UT, tl.program_id(1) + first_head
    o_union = i_h * n_tiles + i_union
    n_listed, m_mine = mine(p_count + o_union, most, SLOTS, TILE, MERGE)
    if not m_mine:
        return
    m_part = False
    if SHARED and TILE:
        m_part = n_listed >= LEFT_OUT
        n_listed %= LEFT_OUT
    for i in range(1 if TILE else tl.minimum(UT, N - i_union * UT)):
        o_tok, o_g, o_n, m_row = rows_of(i_union * UT + i, N, G, GP, BM, TB)
        o_q = o_n * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
        b_q0, b_q1 = load_pair(p_q, o_q, m_row, DK, True)  # [BM, DK]
        b_limit = tl.load(p_queries + 2 * N + o_n)  # [BM]
        last_key = tl.max(b_limit, 0)
        o_list, first = list_of(p_queries, i_union * UT + i, i_h, o_union, N, s_it, s_ih, U, TILE)
        n_blocks = n_listed
        if RESUME:
            n_blocks = close_up(p_blocks + o_list, SLOTS, SP)
        few, n_first = 0, n_blocks
        if not ONLINE:  # so few keys that all are computed below: without any, sums are out of range
            b_place = tl.where(m_row, b_limit - tl.load(p_queries + N + o_n), LB)  # position in the sequence
            few = (tl.min(b_place, 0) < LB).to(tl.int32)
            if not MERGE:
                n_first = tl.where(few > 0, 0, n_blocks)
        b_m, b_l, b_o0, b_o1 = _sums_so_far(
            p_part, p_part_lse, o_n, i_h, o_g, m_row, H, G, BM, DV, RESUME, ONLINE, False
        )
        b_m, b_l, b_o0, b_o1 = _add_blocks(
            b_m, b_l, b_o0, b_o1, b_q0, b_q1, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_blocks + o_list, p_members + o_list,
            last_key, s_kt, s_kh, s_vt, s_vh, scale, first, i_h, n_first, b_limit, o_tok,
            DK, DV, LB, BN, TILE, ONLINE, False, STAGES, PREC, TMA,
        )  # fmt: skip
        if MERGE:
            b_m, b_l, b_o0, b_o1 = add_partials(
                b_m, b_l, b_o0, b_o1, p_lists, p_part, p_part_lse, o_n, i_h, i_first, first_head, part_heads,
                o_g, m_row, H, G, SLOTS, SP, DV, ONLINE, MERGE_STAGES,
            )  # fmt: skip
        again = few
        if not ONLINE:
            again = tl.maximum(again, out_of_range(b_l, m_row))
        if TMA and TILE:  # one token reads but its own block beyond itself, and has no registers for this
            again = tl.maximum(again, not_a_number(b_o0, b_o1, DV))
        if (TMA and TILE) or not ONLINE:
            for _ in range(again):
                b_m, b_l, b_o0, b_o1 = _sums_so_far(
                    p_part, p_part_lse, o_n, i_h, o_g, m_row, H, G, BM, DV, RESUME, ONLINE, True
                )
                b_m, b_l, b_o0, b_o1 = _add_blocks(
                    b_m, b_l, b_o0, b_o1, b_q0, b_q1, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_blocks + o_list,
                    p_members + o_list, last_key, s_kt, s_kh, s_vt, s_vh, scale, first, i_h, n_blocks, b_limit, o_tok,
                    DK, DV, LB, BN, TILE, ONLINE, True, 1, PREC, TMA,
                )  # fmt: skip
                if MERGE:
                    b_m, b_l, b_o0, b_o1 = add_partials(
                        b_m, b_l, b_o0, b_o1, p_lists, p_part, p_part_lse, o_n, i_h, i_first, first_head, part_heads,
                        o_g, m_row, H, G, SLOTS, SP, DV, True, 1,
                    )  # fmt: skip
        b_f, b_lse = end(b_m, b_l)
        o_out = o_n * (H * G) + i_h * G + o_g
        b_o0 *= b_f[:, None]
        b_o1 *= b_f[:, None]
        if SUM:
            DV0: tl.constexpr = b_o0.shape[1]
            m_sum = m_row & (m_part == 0)
            gated_sum(p_cmp, b_o0, p_win, p_gates, p_sum, o_out, m_sum, 0, DV0, DV)
            if DV > DV0:
                gated_sum(p_cmp, b_o1, p_win, p_gates, p_sum, o_out, m_sum, DV0, b_o1.shape[1], DV)
        if KEEP:
            store_pair(p_o, o_out * DV, m_row, b_o0, b_o1, DV, False)
        elif SHARED and TILE:
            store_pair(p_o, o_out * DV, m_row & m_part, b_o0, b_o1, DV, False)
        tl.store(p_lse + o_out, b_lse, mask=m_row)


@launched
@triton.jit(do_not_specialize=["M", "i_first", "first_head", "part_heads", "first_key", "last_key", "BINS", "n_chunks"])
def gather_kernel(
    p_q, p_k, p_v, p_part, p_part_lse, p_order, p_edges, p_segment_edges, p_segment_key, p_blocks,
    M, i_first, first_head, part_heads, first_key, last_key, BINS, n_chunks, s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, LB: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, SLOTS: tl.constexpr, PAIRS: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """One segment of the keys [first_key, last_key), which belong to the chunk of queries that begins at i_first.

    All its queries see the whole block, so nothing is causal here. BN covers the block.
    """
    TB: tl.constexpr = BM // GP
    i_segment = tl.load(p_segment_edges + first_key) + tl.program_id(0)
    if i_segment >= tl.load(p_segment_edges + last_key):
        return
    i_h, start, p_list, n_pairs = segment_of(
        p_order, p_edges, p_segment_edges, p_segment_key, p_blocks, i_segment, BINS, PAIRS
    )
    i_h = i_h // n_chunks
    o_key, o_row = key_rows(start, M - 1, 0, BN, LB)
    b_k0, b_k1 = load_pair(p_k + i_h.to(tl.int64) * s_kh, o_row * s_kt, o_row >= 0, DK, False)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_v + i_h.to(tl.int64) * s_vh, o_row * s_vt, o_row >= 0, DV, False)  # [BN, DV]
    o_r = tl.arange(0, BM)
    o_g = o_r % GP
    o_next = load_pairs(p_list, o_r // GP, n_pairs)  # [BM], read one step ahead of its use
    for i in range(tl.cdiv(n_pairs, TB)):
        o_at = i * TB + o_r // GP
        o_pair = o_next
        o_next = load_pairs(p_list, o_at + TB, n_pairs)
        m_row = (o_at < n_pairs) & (o_g < G)
        o_n = query_of(o_pair, H, SLOTS)
        o_q = o_n * s_qt + (i_h * G + tl.minimum(o_g, G - 1)).to(tl.int64) * s_qh
        b_q0, b_q1 = load_pair(p_q, o_q, m_row, DK, False)  # [BM, DK]
        b_s = dot_rows(b_q0, b_q1, b_k0, b_k1, DK, PREC) * scale  # [BM, BN]
        if LB % BN != 0:
            b_s = tl.where(o_key[None, :] < FAR, b_s, LOW)
        b_m = tl.max(b_s, 1)
        b_p = tl.exp2(b_s - b_m[:, None])
        b_l = tl.sum(b_p, 1)
        o_part = (o_n - i_first) * part_heads + i_h - first_head
        o_part = (o_part * SLOTS + o_pair % SLOTS) * G + o_g
        b_o0, b_o1 = zeros_pair(BM, DV)
        b_o0, b_o1 = add_product(b_o0, b_o1, b_p.to(b_v0.dtype), b_v0, b_v1, DV, PREC)
        store_pair(p_part, o_part * DV, m_row, b_o0 / b_l[:, None], b_o1 / b_l[:, None], DV, False)
        tl.store(p_part_lse + o_part, b_m + tl.log2(b_l), mask=m_row)


# --- launching ---


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


def selected_forward(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, scale: float, cu_seqlens: Borders = None,
    q_start: Tensor | None = None, schedule: Schedule | None = None, into: Sum | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of q [B,T,Hq,Dk] to the blocks of k [B,S,Hkv,Dk], v [B,S,Hkv,Dv].

    Args:
        block_indices: int [B,T,Hkv,slots], blocks of the query's own sequence; -1 anywhere is padding.
        cu_seqlens: borders of packed sequences; B must be 1.
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
    problem = problem_of(q, k, v, block_indices, config, scale, cu_seqlens, q_start)
    schedule = schedule or problem.schedule("selected_tile_forward", backward=False)
    results = _Results(o, lse, into)
    if schedule.dense_from:
        _forward_gather(problem, schedule, results)
    elif schedule.most in (ALWAYS, NEVER):
        by_tile_or_token(problem, schedule, "forward", partial(_launch_forward, to=results))
    else:
        _forward_shared(problem, schedule, results)
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


def _forward_shared(p: Problem, schedule: Schedule, to: _Results) -> None:
    """Tiles with small unions by the tile kernel; of the others, what two queries share by the tile kernel too, and the
    rest by the token kernel, which goes on from there.
    """
    tile, token = (p.launch(f"selected_{x}_forward", p.by_tma(tile=x == "tile")) for x in ("tile", "token"))
    tokens = tile["BM"] // tile["GP"]
    union = inverted_index.union(p.indices, p.where, tokens, dense_from=2, most=schedule.most)
    _launch_forward(p, tile, union, tokens, to=to, shared=True)
    _launch_forward(p, token, union, tokens, to=to, most=WHOLE, tile=False, shared=True)


def _forward_gather(p: Problem, schedule: Schedule, to: _Results) -> None:
    """Tiles with small unions by the tile kernel; of the others, widely shared blocks by the tile kernel too, and the
    rest by the gather kernel, chunk of a head's queries by chunk: of as few heads at once as held results are for.
    """
    tile, gather = p.launch("selected_merge_forward", p.tma), p.launch("selected_gather_forward")
    gather["BN"] = max(16, next_power_of_2(p.where.l_sel))
    rows, slots, tokens = p.indices.shape[0], p.indices.shape[-1], tile["BM"] // tile["GP"]
    chunk = min(cdiv(schedule.chunk, tokens), cdiv(rows, tokens)) * tokens
    chunks, bins, pairs = cdiv(rows, chunk), p.where.bins, schedule.pairs
    at_once = min(chunks, p.heads)
    heads = p.heads // at_once
    union = inverted_index.union(p.indices, p.where, tokens, schedule.dense_from, schedule.most)
    _launch_forward(p, tile, union, tokens, to=to, most=WHOLE)
    segments = chunked_index.segments(union.lists, p.where, chunk, pairs)
    held, keys = chunk * at_once * heads * slots, at_once * heads * bins
    part = p.v.new_empty(held * p.group, p.v.shape[-1])
    part_lse = torch.empty(held * p.group, dtype=torch.float32, device=part.device)
    most_segments = held // pairs + min(held, keys)
    for head in range(0, p.heads, heads):
        for i in range(0, chunks, at_once):
            of = Chunk(i * chunk, min(at_once * chunk, rows - i * chunk), head, min(heads, p.heads - head))
            first_key = (head * chunks + i) * bins
            last_key = first_key + of.heads * min(at_once, chunks - i) * bins
            gather_kernel[(most_segments,)](
                p.q, p.k, p.v, part, part_lse, *segments.arrays, p.where.blocks, p.where.keys, of.first, of.head,
                of.heads, first_key, last_key, bins, chunks,
                *p.strides, p.scale * LOG2E.value,
                PAIRS=pairs, **gather,
            )  # fmt: skip
            _launch_forward(p, tile, union, tokens, to=to, part=(part, part_lse), of=of)


def _launch_forward(
    p: Problem, sizes: dict[str, Any], union: inverted_index.Union | None, union_tokens: int, *, to: _Results,
    most: int = ALWAYS, tile: bool = True, shared: bool = False, part: tuple[Tensor, Tensor] | None = None,
    of: Chunk | None = None,
) -> None:  # fmt: skip
    """The tile kernel or the token kernel over the queries and heads `of` a chunk, all unless given."""
    of = of or Chunk(0, p.indices.shape[0], 0, p.heads)
    together = union_tokens if union else 1
    lists, tma = Lists.of(p, union, tile), p.by_tma(tile)
    forward_kernel[(cdiv(of.rows, together), of.heads)](
        p.q, p.k, p.v, *p.descriptors(sizes["BN"], tma), *to.pointers, *lists.blocks, p.where.queries,
        lists.rest, *(part or (to.o, to.lse)),
        p.indices.shape[0], of.first, of.head, of.heads, lists.tiles, most,
        *p.strides, *lists.strides, p.scale * LOG2E.value,
        TB=together if tile else 1, UT=together, U=lists.width, SP=next_power_of_2(sizes["SLOTS"]),
        TILE=tile, MERGE=part is not None, SHARED=shared, ONLINE=online(p.q, tma), STAGES=sizes["num_stages"],
        TMA=tma, **to.flags, **sizes,
    )  # fmt: skip
