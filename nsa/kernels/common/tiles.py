"""What every kernel shares: how rows and columns are laid out in tiles, and how tiles are loaded.

Rows of a query tile are token-major, head-minor: row r is head r % GP of token r // GP, so one tile of keys serves all
heads of a group, and a sum over heads is a sum inside one token's rows. GP is the group size rounded up to a power of
two; rows of the heads that do not exist are masked. A head dimension that is no power of two is held as two tiles
(192 = 128 + 64), because padding it to the next power would waste up to half of the arithmetic.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.common.launch import VERSION

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LOW = tl.constexpr(-1.0e30)  # below every logit, and finite: the difference of two of them is 0, not NaN

LOADS_CHAIN = tl.constexpr(VERSION >= (3, 3))
"""Whether Triton's pipeliner takes loads whose mask or address another step of the loop has loaded."""


@triton.jit
def load_tile(p_x, o_row, m_row, START: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr):
    """Columns [START, START + WIDTH) of the rows that begin at o_row: [R, WIDTH]; what lies outside D or m_row is 0."""
    o_col = START + tl.arange(0, WIDTH)
    p_tile = p_x + o_row[:, None] + o_col[None, :]
    if START + WIDTH > D:
        if MASKED:
            b_x = tl.load(p_tile, mask=m_row[:, None] & (o_col[None, :] < D), other=0.0)
        else:
            b_x = tl.load(p_tile, mask=o_col[None, :] < D, other=0.0)
    elif MASKED:
        b_x = tl.load(p_tile, mask=m_row[:, None], other=0.0)
    else:
        b_x = tl.load(p_tile)
    return b_x


@triton.jit
def zeros_pair(R: tl.constexpr, D: tl.constexpr):
    """R rows of D columns as two tiles of zeros in fp32, as wide as `split_dim` says; without a second, the first
    stands in for it. All pairs are as wide: the first width is `b_0.shape[1]`, and there is a second if D is more.
    """
    D0: tl.constexpr = 256 if D >= 256 else (128 if D >= 128 else (64 if D >= 64 else (32 if D >= 32 else 16)))
    b_0 = tl.zeros([R, D0], tl.float32)
    b_1 = b_0
    if D > D0:
        D1: tl.constexpr = 128 if D - D0 > 64 else (64 if D - D0 > 32 else (32 if D - D0 > 16 else 16))
        b_1 = tl.zeros([R, D1], tl.float32)
    return b_0, b_1


@triton.jit
def load_pair(p_x, o_row, m_row, D: tl.constexpr, MASKED: tl.constexpr):
    """The rows at o_row as two tiles."""
    b_0, b_1 = zeros_pair(o_row.shape[0], D)  # only their widths count
    D0: tl.constexpr = b_0.shape[1]
    D1: tl.constexpr = b_1.shape[1]
    b_0 = load_tile(p_x, o_row, m_row, 0, D0, D, MASKED)
    b_1 = b_0
    if D > D0:
        b_1 = load_tile(p_x, o_row, m_row, D0, D1, D, MASKED)
    return b_0, b_1


@triton.jit
def load_keys(p_x, d_0, d_1, o_row, m_row, i_row, i_column, D: tl.constexpr, MASKED: tl.constexpr, TMA: tl.constexpr):
    """Rows of keys or values as two tiles: by TMA from (i_row, i_column) on, or by `load_pair`."""
    if TMA:
        b_0 = d_0.load([i_row, i_column])
        b_1 = b_0
        if b_0.shape[1] < D:
            b_1 = d_1.load([i_row, i_column + b_0.shape[1]])
    else:
        b_0, b_1 = load_pair(p_x, o_row, m_row, D, MASKED)
    return b_0, b_1


@triton.jit
def load_queries(
    p_x, d_0, d_1, o_row, m_row, i_row, i_head, BM: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """BM rows (token, head) as two tiles: by TMA from token i_row and head i_head on."""
    if TMA:
        b_0 = d_0.load([i_row, i_head, 0])
        D0: tl.constexpr = b_0.shape[2]
        b_0 = tl.reshape(b_0, [BM, D0])
        b_1 = b_0
        if D > D0:
            b_1 = d_1.load([i_row, i_head, D0])
            b_1 = tl.reshape(b_1, [BM, b_1.shape[2]])
    else:
        b_0, b_1 = load_pair(p_x, o_row, m_row, D, MASKED)
    return b_0, b_1


@triton.jit
def dot_rows(b_q0, b_q1, b_k0, b_k1, D: tl.constexpr, PREC: tl.constexpr):
    """b_q [M, D] times b_k [N, D] transposed: [M, N]."""
    b_s = tl.dot(b_q0, tl.trans(b_k0), input_precision=PREC)
    if b_q0.shape[1] < D:
        b_s = tl.dot(b_q1, tl.trans(b_k1), b_s, input_precision=PREC)
    return b_s


@triton.jit
def add_product(b_sum0, b_sum1, b_a, b_x0, b_x1, D: tl.constexpr, PREC: tl.constexpr):
    """b_sum [M, D] + b_a [M, N] times b_x [N, D]."""
    b_sum0 = tl.dot(b_a, b_x0, b_sum0, input_precision=PREC)
    if b_x0.shape[1] < D:
        b_sum1 = tl.dot(b_a, b_x1, b_sum1, input_precision=PREC)
    return b_sum0, b_sum1


@triton.jit
def store_tile(p_x, o_row, m_row, b_x, START: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, ADD: tl.constexpr):
    """Write b_x [R, WIDTH] to columns [START, START + WIDTH) of the rows at o_row, or add it to what is there."""
    o_col = START + tl.arange(0, WIDTH)
    p_tile = p_x + o_row[:, None] + o_col[None, :]
    m_tile = m_row[:, None] & (o_col[None, :] < D)
    if ADD:
        b_x += tl.load(p_tile, mask=m_tile, other=0.0).to(tl.float32)
    tl.store(p_tile, b_x.to(p_x.dtype.element_ty), mask=m_tile)


@triton.jit
def store_pair(p_x, o_row, m_row, b_0, b_1, D: tl.constexpr, ADD: tl.constexpr):
    """Both tiles of rows by `store_tile`."""
    D0: tl.constexpr = b_0.shape[1]
    store_tile(p_x, o_row, m_row, b_0, 0, D0, D, ADD)
    if D > D0:
        store_tile(p_x, o_row, m_row, b_1, D0, b_1.shape[1], D, ADD)


@triton.jit
def mask_free(i_lo, i_full, i_cut, i_hi, STEP: tl.constexpr):
    """Split the steps over [i_lo, i_hi) into those inside [i_full, i_cut), which need no mask, and the others.

    Returns left, right, n: steps left <= i < right of n are mask-free. A kernel takes them first, then the others, in
    two loops of one body: `for MASKED in tl.static_range(2)`.
    """
    n = tl.cdiv(tl.maximum(i_hi - i_lo, 0), STEP)
    left = tl.minimum(tl.cdiv(tl.maximum(i_full - i_lo, 0), STEP), n)
    right = tl.maximum(left, tl.minimum(tl.maximum(i_cut - i_lo, 0) // STEP, n))
    return left, right, n
