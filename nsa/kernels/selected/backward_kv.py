"""The gradient of k and v of selected attention, block by block over the segments of `inverted_index.Segments`.

Each segment gathers its queries and writes fp32 partial sums, which a second kernel adds in the order of the segments,
window by window, so that only one window's are held. Nothing is added atomically: every call gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.backward_preprocess import load_stats
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2, pad_group
from nsa.kernels.common.tiles import LOADS_CHAIN, LOG2E, add_product, dot_rows, load_pair, store_pair, zeros_pair
from nsa.kernels.selected import inverted_index
from nsa.kernels.selected.addresses import key_rows, load_pairs, query_of, segment_of
from nsa.kernels.selected.inverted_index import FAR
from nsa.kernels.selected.tile_scheduler import Chunk, Problem

SEGMENTS_WANTED = 4096
"""Segments of the gradient of k and v that fill the card with even work (measured on an H200)."""

SEGMENTS_HELD = 4096
"""Segments whose partial sums are held at once: 64 KB each with blocks of 64 keys and heads of 128."""

SEGMENTS_AHEAD = tl.constexpr(4)
"""Partial sums of so many segments are on their way at once."""


@launched
@triton.jit(
    do_not_specialize=["N", "M", "i_first", "first_head", "part_heads", "first_key", "last_key", "begin", "BINS"]
)
def dkv_kernel(
    p_q, p_k, p_v, p_do, p_stats, p_dk, p_dv, p_order, p_edges, p_segment_edges, p_segment_key, p_blocks,
    p_queries, p_part, N, M, i_first, first_head, part_heads, first_key, last_key, begin, BINS,
    s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, scale,
    H: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, LB: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, SLOTS: tl.constexpr, PAIRS: tl.constexpr, PREC: tl.constexpr,
    ROWS: tl.constexpr, DQ: tl.constexpr,
):  # fmt: skip
    """A segment of the keys [first_key, last_key) from their segment `begin` on, BN keys of its block: fp32 sums p_dk,
    p_dv [R,ROWS,D*] of the R segments of the launch.

    Keys are the rows of the tiles, so that p and ds stay in registers as left operands. With DQ the queries belong to
    the chunk that begins at i_first, of `part_heads` KV heads from `first_head` on, and see the whole block, BN covers
    it, and each pair's dq goes to p_part.
    """
    TB: tl.constexpr = BM // GP
    i_segment, i_sub = tl.load(p_segment_edges + first_key) + begin + tl.program_id(0), tl.program_id(1)
    if i_segment >= tl.load(p_segment_edges + last_key):
        return
    i_h, start, p_list, n_pairs = segment_of(
        p_order, p_edges, p_segment_edges, p_segment_key, p_blocks, i_segment, BINS, PAIRS
    )
    i_h = i_h % H
    o_key, o_at = key_rows(start, M - 1, i_sub, BN, LB)
    b_k0, b_k1 = load_pair(p_k + i_h.to(tl.int64) * s_kh, o_at * s_kt, o_at >= 0, DK, False)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_v + i_h.to(tl.int64) * s_vh, o_at * s_vt, o_at >= 0, DV, False)  # [BN, DV]
    b_dk0, b_dk1 = zeros_pair(BN, DK)
    b_dv0, b_dv1 = zeros_pair(BN, DV)
    o_r = tl.arange(0, BM)
    o_g = o_r % GP
    o_next = load_pairs(p_list, o_r // GP, n_pairs)  # [BM], read one step ahead of its use
    for i in tl.range(0, tl.cdiv(n_pairs, TB), num_stages=None if LOADS_CHAIN else 1):
        o_pos = i * TB + o_r // GP
        o_pair = o_next
        o_next = load_pairs(p_list, o_pos + TB, n_pairs)
        o_n = query_of(o_pair, H, SLOTS)
        m_row = (o_pos < n_pairs) & (o_g < G)
        o_head = i_h * G + tl.minimum(o_g, G - 1)
        o_row = o_n * (H * G) + o_head
        b_q0, b_q1 = load_pair(p_q, o_n * s_qt + o_head.to(tl.int64) * s_qh, m_row, DK, False)  # [BM, DK]
        b_do0, b_do1 = load_pair(p_do, o_row * DV, m_row, DV, False)  # [BM, DV]
        b_lse, b_delta, b_sign = load_stats(p_stats, o_row, m_row)
        b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK, PREC) * (scale * LOG2E) - b_lse[None, :])  # [BN, BM]
        if not DQ:
            b_limit = tl.load(p_queries + 2 * N + o_n)
            b_p = tl.where(o_key[:, None] <= b_limit[None, :], b_p, 0.0)
        elif LB % BN != 0:
            b_p = tl.where(o_key[:, None] < FAR, b_p, 0.0)
        b_p *= b_sign[None, :]
        b_dv0, b_dv1 = add_product(b_dv0, b_dv1, b_p.to(b_do0.dtype), b_do0, b_do1, DV, PREC)
        b_ds = b_p * (dot_rows(b_v0, b_v1, b_do0, b_do1, DV, PREC) - b_delta[None, :])
        b_ds = b_ds.to(b_q0.dtype)
        b_dk0, b_dk1 = add_product(b_dk0, b_dk1, b_ds, b_q0, b_q1, DK, PREC)
        if DQ:  # transposed, because BM is smaller than the 64 rows that the matrix units take
            o_part = (o_n - i_first) * part_heads + i_h - first_head
            o_part = ((o_part * SLOTS + o_pair % SLOTS) * G + o_g) * DK
            b_dq0 = tl.trans(tl.dot(tl.trans(b_k0), b_ds, input_precision=PREC)) * scale  # [BM, DK0]
            b_dq1 = b_dq0
            if b_k0.shape[1] < DK:
                b_dq1 = tl.trans(tl.dot(tl.trans(b_k1), b_ds, input_precision=PREC)) * scale
            store_pair(p_part, o_part, m_row, b_dq0, b_dq1, DK, False)
    o_out = tl.program_id(0).to(tl.int64) * ROWS + i_sub * BN + tl.arange(0, BN)
    store_pair(p_dk, o_out * DK, o_key >= 0, b_dk0 * scale, b_dk1 * scale, DK, False)
    store_pair(p_dv, o_out * DV, o_key >= 0, b_dv0, b_dv1, DV, False)


@triton.jit
def _reduce_piece(
    p_part, p_sum, p_x, p_segment_edges, p_blocks, BINS, first_head, first_key, begin, count, i_piece,
    H: tl.constexpr, D: tl.constexpr, LB: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Add BN keys by BD columns of the partials p_part [count,ROWS,D] of one block and KV head to those of the windows
    before in p_sum [M,H,D]; the last window writes the whole to p_x [M,H,D] instead.
    """
    i_bin, i_h = tl.program_id(0), first_head + tl.program_id(1)
    first, end = tl.load(p_blocks + i_bin), tl.load(p_blocks + BINS + i_bin)
    i_key = first_key + tl.program_id(1) * BINS + i_bin
    window = tl.load(p_segment_edges + first_key) + begin
    i_segment = tl.maximum(tl.load(p_segment_edges + i_key), window)
    n_segments = tl.minimum(tl.load(p_segment_edges + i_key + 1), window + count) - i_segment
    o_key = i_piece // tl.cdiv(D, BD) * BN + tl.arange(0, BN)  # [BN]
    o_col = i_piece % tl.cdiv(D, BD) * BD + tl.arange(0, BD)
    m_key = (o_key < LB) & (first + o_key < end)
    if not (FIRST or LAST):  # a sum that nothing is added to stays
        m_key = m_key & (n_segments > 0)
    m_tile = m_key[:, None] & (o_col < D)[None, :]
    o_tile = o_key[:, None] * D + o_col[None, :]
    o_x = (((first + o_key).to(tl.int64) * H + i_h) * D)[:, None] + o_col[None, :]
    b_sum = tl.zeros([BN, BD], tl.float32)
    if not FIRST:
        b_sum += tl.load(p_sum + o_x, mask=m_tile, other=0.0)
    p_segment = p_part + (i_segment - window).to(tl.int64) * (ROWS * D)
    for i in range(0, n_segments, SEGMENTS_AHEAD):
        for j in tl.static_range(SEGMENTS_AHEAD):  # loads that wait for each other's addition took most of the time
            b_sum += tl.load(p_segment + o_tile, mask=m_tile & (i + j < n_segments), other=0.0)
            p_segment += ROWS * D
    if LAST:
        tl.store(p_x + o_x, b_sum.to(p_x.dtype.element_ty), mask=m_tile)
    else:
        tl.store(p_sum + o_x, b_sum, mask=m_tile)


@launched
@triton.jit(do_not_specialize=["BINS", "first_head", "first_key", "begin", "count"])
def reduce_kernel(
    p_dks, p_dvs, p_dk_sum, p_dv_sum, p_dk, p_dv, p_segment_edges, p_blocks, BINS, first_head, first_key, begin, count,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, LB: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr,
    BDK: tl.constexpr, BDV: tl.constexpr, PIECES: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Add up what one launch of `dkv_kernel` left of one block and KV head, which are from `first_key` and `first_head`
    on, a piece a program: the first PIECES are of dk, the others of dv.

    A block that no query selected gets zeros. Keys of no block do not exist: every key belongs to one.
    """
    i_piece = tl.program_id(2)
    if i_piece < PIECES:
        _reduce_piece(
            p_dks, p_dk_sum, p_dk, p_segment_edges, p_blocks, BINS, first_head, first_key, begin, count, i_piece,
            H, DK, LB, ROWS, BN, BDK, FIRST, LAST,
        )  # fmt: skip
    else:
        _reduce_piece(
            p_dvs, p_dv_sum, p_dv, p_segment_edges, p_blocks, BINS, first_head, first_key, begin, count,
            i_piece - PIECES, H, DV, LB, ROWS, BN, BDV, FIRST, LAST,
        )  # fmt: skip


# --- launching ---

Upstream = tuple[Tensor, Tensor]
"""What comes back into the operation: do [B,T,Hq,Dv] and the stats of its rows."""


def held_at_once(segments: int) -> int:
    """Of so many segments, those whose partial sums are held at once."""
    return min(SEGMENTS_HELD, segments)


def segment_pairs(p: Problem, tile_rows: int) -> int:
    """Pairs of one segment: long ones, so that few partial sums are written, but enough to fill the card."""
    tokens = tile_rows // pad_group(p.group)
    tiles = next_power_of_2(max(1, p.indices.numel() // (tokens * SEGMENTS_WANTED)))
    return tokens * min(256, max(16, tiles))


@dataclass(frozen=True)
class KeySums:
    """dk and dv on their way: each launch adds what a window of segments contributes, always in their order.

    Attributes:
        segments: of all pairs.
        rows: keys of one segment's block, padded.
        part: fp32 [segments of a window,rows,D*], the partial sums of one window.
        sums: fp32, of the windows so far, where there are several; else what they stand in for.
        out: dk and dv.
    """

    segments: inverted_index.Segments
    rows: int
    part: tuple[Tensor, Tensor]
    sums: tuple[Tensor, Tensor]
    out: tuple[Tensor, Tensor]

    @classmethod
    def of(
        cls, p: Problem, segments: inverted_index.Segments, held: int, all_at_once: bool, out: tuple[Tensor, Tensor]
    ) -> KeySums:
        """Sums with room for the partial sums of `held` segments, which may be all of them."""
        rows = next_power_of_2(max(16, p.where.l_sel))
        part = tuple(torch.empty(held, rows, x.shape[-1], dtype=torch.float32, device=x.device) for x in (p.k, p.v))
        sums = out if all_at_once else tuple(torch.empty_like(x, dtype=torch.float32) for x in out)
        return cls(segments, rows, part, sums, out)  # type: ignore[arg-type]

    def add(
        self, p: Problem, up: Upstream, first_key: int, of: Chunk, most_segments: int, part: Tensor | None = None
    ) -> None:
        """Add the segments of the chunk's heads, whose keys are from `first_key` on, one launch after the other; with
        `part`, which holds the chunk's parts of dq, write those too. The first chunk of each head has the head's first
        keys, and all heads end together, with the last key of all.
        """
        held, all_keys = self.part[0].shape[0], self.segments.edges.numel() - 1
        last_key = first_key + of.heads * p.where.bins
        for begin in range(0, most_segments, held):
            count = min(held, most_segments - begin)
            self._launch(p, up, (first_key, last_key), of, begin, count, part)
            is_first = first_key == of.head * p.where.bins and begin == 0
            is_last = last_key == all_keys and begin + count == most_segments
            self._reduce(p, first_key, of, begin, count, is_first, is_last)

    def _launch(
        self, p: Problem, up: Upstream, keys: tuple[int, int], of: Chunk, begin: int, count: int, part: Tensor | None
    ) -> None:
        """The partial sums of `count` segments of the keys from their segment `begin` on."""
        sizes = p.launch("selected_dkv" if part is None else "selected_dkv_dq")
        if part is not None:
            sizes["BN"] = self.rows
        dkv_kernel[(count, cdiv(p.where.l_sel, sizes["BN"]))](
            p.q, p.k, p.v, *up, *self.part, *self.segments.arrays, p.where.blocks, p.where.queries,
            self.part[0] if part is None else part,
            p.indices.shape[0], p.where.keys, of.first, of.head, of.heads, *keys, begin, p.where.bins,
            *p.strides, p.scale, PAIRS=self.segments.pairs, ROWS=self.rows, DQ=part is not None, **sizes,
        )  # fmt: skip

    def _reduce(self, p: Problem, first_key: int, of: Chunk, begin: int, count: int, first: bool, last: bool) -> None:
        """Add what the launch left to the sums; the last one makes dk and dv of them."""
        keys, sizes = min(32, self.rows), [x.shape[-1] for x in self.out]
        columns = [min(64, next_power_of_2(width)) for width in sizes]
        pieces = [self.rows // keys * cdiv(width, at_once) for width, at_once in zip(sizes, columns, strict=True)]
        reduce_kernel[(p.where.bins, of.heads, sum(pieces))](
            *self.part, *self.sums, *self.out, self.segments.segment_edges, p.where.blocks, p.where.bins, of.head,
            first_key, begin, count, H=p.heads, DK=sizes[0], DV=sizes[1], LB=p.where.l_sel, ROWS=self.rows, BN=keys,
            BDK=columns[0], BDV=columns[1], PIECES=pieces[0], FIRST=first, LAST=last,
        )  # fmt: skip


def backward_kv(p: Problem, up: Upstream, dk: Tensor, dv: Tensor) -> None:
    """dk and dv by segments of the queries of each block."""
    keys = p.heads * p.where.bins
    pairs = segment_pairs(p, p.launch("selected_dkv")["BM"])
    segments = inverted_index.segments(inverted_index.pair_keys(p.indices, p.where), keys, pairs, keys)
    most_segments, whole = segments.segment_key.numel(), Chunk(0, p.indices.shape[0], 0, p.heads)
    held = held_at_once(most_segments)
    KeySums.of(p, segments, held, held == most_segments, (dk, dv)).add(p, up, 0, whole, most_segments)
