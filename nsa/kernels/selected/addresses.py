"""What a program of selected attention computes, and where that lies: asked alike by forward and gradient.

A program has neighbouring queries and the blocks of their union, a query and its own blocks, or a segment of the
queries that chose one block (`inverted_index.Segments`). Row r of a tile is head r % GP of its query r // GP.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.tiles import LOADS_CHAIN, load_keys
from nsa.kernels.selected.inverted_index import FAR, LEFT_OUT

MERGE_STAGES = tl.constexpr(4 if LOADS_CHAIN.value else 1)
"""Loads ahead in the loops that add partial results; without a number Triton pipelines only loops with a dot."""


@triton.jit
def mine(p_count, most, SLOTS: tl.constexpr, TILE: tl.constexpr, MERGE: tl.constexpr):
    """Over how many blocks a program computes its queries, and whether it does: the size of their union decides.

    The tile kernel takes at most `most` blocks, the token kernel the rest; most = -1 leaves everything to that. With
    MERGE the tile kernel takes the unions that some blocks were left out of.
    """
    if TILE:
        n_blocks = tl.load(p_count)
        if MERGE:
            n_blocks -= LEFT_OUT  # below 0 where nothing was left out: the kernel without MERGE computes that tile
        m_mine = (n_blocks <= most) & (n_blocks >= 0)
    else:
        n_blocks = SLOTS
        m_mine = most < 0
        if most >= 0:  # without a union there is no count to load
            m_mine = tl.load(p_count) > most
    return n_blocks, m_mine


@triton.jit
def rows_of(i_n, N, G: tl.constexpr, GP: tl.constexpr, BM: tl.constexpr, TB: tl.constexpr):
    """Of the rows [BM] of TB neighbouring queries from i_n on: number in the tile, head, query, whether it exists."""
    o_r = tl.arange(0, BM)
    o_tok, o_g = o_r // GP, o_r % GP
    o_n = i_n + o_tok
    m_row = (o_tok < TB) & (o_n < N) & (o_g < G)
    return o_tok, o_g, tl.minimum(o_n, N - 1).to(tl.int64), m_row


@triton.jit
def list_of(p_queries, i_n, i_h, o_union, N, s_it, s_ih, U: tl.constexpr, TILE: tl.constexpr):
    """Where the list of blocks begins, of a union or of query i_n; and the first key that the query's count from."""
    if TILE:
        o_list = o_union.to(tl.int64) * U
        first = 0
    else:
        o_list = i_n.to(tl.int64) * s_it + i_h.to(tl.int64) * s_ih
        first = tl.load(p_queries + N + i_n)
    return o_list, first


@triton.jit
def block_of(p_blocks, p_members, i, first, b_limit, o_tok, LB: tl.constexpr, TILE: tl.constexpr):
    """Where the i-th block begins (FAR: padding), and up to which key each row reads it; -1 where it was not chosen."""
    if TILE:
        start = tl.load(p_blocks + i)
        b_last = tl.where(((tl.load(p_members + i) >> o_tok) & 1) != 0, b_limit, -1)
    else:
        block = tl.load(p_blocks + i)
        start = tl.where(block < 0, FAR, first + block * LB)
        b_last = b_limit
    return start, b_last


@triton.jit
def key_rows(start, last_key, i_sub, BN: tl.constexpr, LB: tl.constexpr):
    """Keys [BN] of part i_sub of the block at `start`, FAR outside the block; and rows of it to load from, to last_key:
    p = 0 would not keep out a value that is no number.
    """
    o_c = i_sub * BN + tl.arange(0, BN)
    o_key, o_row = start + o_c, start + o_c
    if LB % BN != 0:
        o_key = tl.where(o_c < LB, o_key, FAR)
        o_row = start + tl.minimum(o_c, LB - 1)
    return o_key, tl.minimum(o_row, last_key).to(tl.int64)


@triton.jit
def load_block(p_x, d_0, d_1, start, o_row, i_h, s_t, s_h, D: tl.constexpr, TMA: tl.constexpr):
    """Rows of keys or values of one KV head [BN,D]: by TMA from `start` (0 past the end), or from o_row."""
    return load_keys(p_x + i_h.to(tl.int64) * s_h, d_0, d_1, o_row * s_t, o_row >= 0, start, i_h * D, D, False, TMA)


# --- of a segment ---


@triton.jit
def segment_of(p_order, p_edges, p_segment_edges, p_segment_key, p_blocks, i_segment, BINS, PAIRS: tl.constexpr):
    """Of a segment: its key without the bin, where its block begins, its place in the order, how many pairs it has."""
    i_key = tl.load(p_segment_key + i_segment)
    begin = tl.load(p_edges + i_key) + (i_segment - tl.load(p_segment_edges + i_key)) * PAIRS
    n_pairs = tl.minimum(PAIRS, tl.load(p_edges + i_key + 1) - begin)
    return i_key // BINS, tl.load(p_blocks + i_key % BINS), p_order + begin, n_pairs


@triton.jit
def load_pairs(p_list, o_at, n_pairs):
    """The pair numbers at o_at of a segment, the last one's after its end."""
    o_pair = tl.load(p_list + tl.minimum(o_at, n_pairs - 1))
    if LOADS_CHAIN:  # what goes from step to step is narrow; Triton 3.0 crashes on that
        o_pair = o_pair.to(tl.int32)
    return o_pair


@triton.jit
def query_of(o_pair, H: tl.constexpr, SLOTS: tl.constexpr):
    """The query of each pair, int64; pair numbers have 31 bits, which are cheaper to divide."""
    return (o_pair.to(tl.int32) // (H * SLOTS)).to(tl.int64)
