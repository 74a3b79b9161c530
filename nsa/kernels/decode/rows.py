"""What the decode kernels share: where a sequence stands, where its rows are, and one step of online softmax.

A cache's row of position p is row b * ROWS + p of a contiguous buffer [B * ROWS, H, D], or lies in the page that a
table names. All kernels have the grid (KV heads, splits, sequences): the programs of one row's heads run side by side,
so that they read whole rows together.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.tiles import LOW, dot_rows, load_pair


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
def query_position(p_length, p_now, i_b, APPEND: tl.constexpr):
    """Position of the query of sequence i_b; where tokens are appended, as the first kernel left it."""
    p_t = p_now if APPEND else p_length
    return tl.load(p_t + i_b).to(tl.int32) - (0 if APPEND else 1)


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
def load_queries(
    p_q, i_b, i_h, s_qb, s_qh, G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr
):
    """The group's queries as two tiles [GP, DK0], [GP, DK1]."""
    o_g = tl.arange(0, GP)
    o_q = i_b.to(tl.int64) * s_qb + (i_h * G + o_g).to(tl.int64) * s_qh
    return load_pair(p_q, o_q, o_g < G, DK, DK0, DK1, True)


@triton.jit
def logits_of(
    b_q0, b_q1, p_k, o_row, m_key, scale, DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, PREC: tl.constexpr
):
    """Logits [GP, BN] in units of log 2; LOW for keys outside m_key."""
    b_k0, b_k1 = load_pair(p_k, o_row * DK, m_key, DK, DK0, DK1, True)
    b_s = dot_rows(b_q0, b_q1, b_k0, b_k1, DK1, PREC) * scale
    return tl.where(m_key[None, :], b_s, LOW)


@triton.jit
def begin(GP: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr):
    """What `softmax_step` has before any key."""
    b_a0 = tl.zeros([GP, DV0], tl.float32)
    b_a1 = b_a0
    if DV1 > 0:
        b_a1 = tl.zeros([GP, DV1], tl.float32)
    return tl.full([GP], LOW, tl.float32), tl.zeros([GP], tl.float32), b_a0, b_a1


@triton.jit
def softmax_step(
    b_s, b_m, b_l, b_a0, b_a1, p_v, o_row, m_key,
    DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Take keys with logits b_s [GP, BN] in: the largest logit b_m, the sum b_l, and the weighted values."""
    b_top = tl.maximum(b_m, tl.max(b_s, 1))
    b_shrink = tl.math.exp2(b_m - b_top)
    b_p = tl.where(m_key[None, :], tl.math.exp2(b_s - b_top[:, None]), 0.0)
    b_v0, b_v1 = load_pair(p_v, o_row * DV, m_key, DV, DV0, DV1, True)
    b_l = b_l * b_shrink + tl.sum(b_p, 1)
    b_w = b_p.to(b_v0.dtype)
    b_a0 = b_a0 * b_shrink[:, None] + tl.dot(b_w, b_v0, input_precision=PREC)
    if DV1 > 0:
        b_a1 = b_a1 * b_shrink[:, None] + tl.dot(b_w, b_v1, input_precision=PREC)
    return b_top, b_l, b_a0, b_a1


@triton.jit
def store_columns(p_x, o_row, m_row, b_x, START: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr):
    """Write b_x [R, WIDTH] fp32 to columns [START, START + WIDTH) of rows of D."""
    o_col = START + tl.arange(0, WIDTH)
    tl.store(p_x + o_row[:, None] * D + o_col[None, :], b_x, mask=m_row[:, None] & (o_col[None, :] < D))


@triton.jit
def store_partial(
    p_m, p_l, p_a, i_split, b_m, b_l, b_a0, b_a1,
    G: tl.constexpr, GP: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
):  # fmt: skip
    """Leave what one split of the keys gave: p_m, p_l [splits, GP] and p_a [splits, GP, DV]."""
    o_g = tl.arange(0, GP)
    o_row = i_split.to(tl.int64) * GP + o_g
    tl.store(p_m + o_row, b_m)
    tl.store(p_l + o_row, b_l)
    store_columns(p_a, o_row, o_g < G, b_a0, 0, DV0, DV)
    if DV1 > 0:
        store_columns(p_a, o_row, o_g < G, b_a1, DV0, DV1, DV)
