"""What the decode kernels share: where a sequence stands, where its rows are, and one step of online softmax.

A cache's row of position p is row b * ROWS + p of a contiguous buffer [B * ROWS, H, D], or lies in the page that a
table names. The grid is (KV heads, splits, queries): the programs of one row's heads run side by side, so that they
read whole rows together. Queries are numbered over all sequences, TOKENS of each: query i_n is of sequence
i_n // TOKENS, and without new tokens TOKENS is 1.

A program holds the queries of one part, G heads: PARTS equal ones make a KV head's group. Parts are numbered over all
KV heads, i_p, so that i_p * G is the first head of each. They read the same keys; all but the first find them in L2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.softmax import add_keys
from nsa.kernels.common.tiles import dot_rows, load_pair, store_pair


@triton.jit
def new_token(
    p_length, p_count, p_table, i_b, LIMIT, s_table,
    PAGE: tl.constexpr, APPEND: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """Position of the query of sequence i_b (-1: none), and whether its token is a new one that has room."""
    i_t = tl.load(p_length + i_b).to(tl.int32) - 1
    m_new = i_t < -1  # no
    if APPEND:
        m_new = i_t + 1 < LIMIT
        if COUNTED:
            m_new = m_new & (tl.load(p_count + i_b) > 0)
        if PAGE > 0:
            m_new = m_new & (tl.load(p_table + i_b * s_table + tl.minimum(i_t + 1, LIMIT - 1) // PAGE) >= 0)
        i_t += m_new.to(tl.int32)
    return i_t, m_new


@triton.jit
def new_position(
    p_length, p_count, p_table, i_b, i, LIMIT, s_table, PAGE: tl.constexpr, COUNTED: tl.constexpr
):  # fmt: skip
    """Position of new token i of sequence i_b, none of which is appended yet; -1: it is padding, or has no room."""
    i_t = tl.load(p_length + i_b).to(tl.int32) + i
    m_new = i_t < LIMIT
    if COUNTED:
        m_new = m_new & (i < tl.load(p_count + i_b))
    if PAGE > 0:
        m_new = m_new & (tl.load(p_table + i_b * s_table + tl.minimum(i_t, LIMIT - 1) // PAGE) >= 0)
    return tl.where(m_new, i_t, -1)


@triton.jit
def query_position(p_length, p_now, i_n, APPEND: tl.constexpr):
    """Position of query i_n (-1: none); where tokens are appended, as the kernel that did so left it."""
    p_t = p_now if APPEND else p_length
    return tl.load(p_t + i_n).to(tl.int32) - (0 if APPEND else 1)


@triton.jit
def pages_of(p_table, i_b, o_pos, m_pos, s_table, PAGE: tl.constexpr):
    """Pages of the positions o_pos of sequence i_b, PAGE rows each; PAGE = 0: there are none, and anything will do.

    A loop over keys reads them one tile ahead of `rows_in`: then no load of the tile waits for another.
    """
    b_page = o_pos
    if PAGE > 0:
        b_page = tl.load(p_table + i_b * s_table + o_pos // PAGE, mask=m_pos, other=0)
    return b_page


@triton.jit
def rows_in(b_page, i_b, o_pos, ROWS, PAGE: tl.constexpr):
    """Rows (int64) of the positions o_pos of sequence i_b in their pages."""
    o_row = i_b.to(tl.int64) * ROWS + o_pos
    if PAGE > 0:
        o_row = tl.maximum(b_page, 0).to(tl.int64) * PAGE + o_pos % PAGE
    return o_row


@triton.jit
def load_queries(p_q, i_n, i_p, s_qb, s_qh, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr):
    """The part's queries as two tiles [GP, DK]."""
    o_g = tl.arange(0, GP)
    o_q = i_n.to(tl.int64) * s_qb + (i_p * G + o_g).to(tl.int64) * s_qh
    return load_pair(p_q, o_q, o_g < G, DK, True)


@triton.jit
def attend(
    b_q0, b_q1, b_m, b_l, b_a0, b_a1, p_k, p_v, o_row, m_key, scale,
    DK: tl.constexpr, DV: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """One step of `common.softmax`, online: the keys in the rows o_row, those of m_key. Their logits come first,
    [GP, BN] in units of log 2; -inf for keys outside m_key.
    """
    b_k0, b_k1 = load_pair(p_k, o_row * DK, m_key, DK, True)
    b_s = tl.where(m_key[None, :], dot_rows(b_q0, b_q1, b_k0, b_k1, DK, PREC) * scale, float("-inf"))
    b_v0, b_v1 = load_pair(p_v, o_row * DV, m_key, DV, True)
    b_m, b_l, b_a0, b_a1 = add_keys(b_m, b_l, b_a0, b_a1, b_s, m_key, b_v0, b_v1, DV, False, True, PREC)
    return b_s, b_m, b_l, b_a0, b_a1


@triton.jit
def store_partial(
    p_m, p_l, p_a, p_seen, i_split, b_m, b_l, b_a0, b_a1, b_seen,
    G: tl.constexpr, GP: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Leave what one split of the keys gave: p_m, p_l [splits, GP], p_a [splits, GP, DV], p_seen [splits]."""
    o_g = tl.arange(0, GP)
    o_row = i_split.to(tl.int64) * GP + o_g
    tl.store(p_m + o_row, b_m)
    tl.store(p_l + o_row, tl.sum(b_l, 1))
    store_pair(p_a, o_row * DV, o_g < G, b_a0, b_a1, DV, False)
    tl.store(p_seen + i_split, tl.sum(b_seen, 0))


@triton.jit
def over_splits(b_m, b_l, AXIS: tl.constexpr):
    """Of splits along an axis with largest logits b_m and sums b_l: exp2(b_m - top), top, and the sum over all."""
    b_top = tl.max(b_m, AXIS)
    b_w = tl.exp2(b_m - tl.expand_dims(b_top, AXIS))
    return b_w, b_top, tl.sum(b_w * b_l, AXIS)
