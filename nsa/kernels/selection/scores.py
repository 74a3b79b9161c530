"""Scores of blocks, between the passes of `select`: what the first leaves of a query in its row of the scratch.

Either the probabilities p of all compressed tokens, or, a fraction of that, two numbers of each block: the sum of the
tokens that begin in it, weighted by what they share with it, and what the last one before it adds. The latter takes
blocks that begin where compressed tokens do and overlap with one earlier token at most, as l = 2 d has it, and one
sequence to a batch entry: in packed sequences, blocks begin anywhere in a tile of compressed tokens.
"""

from __future__ import annotations

from functools import lru_cache

import triton
import triton.language as tl

from nsa.blocks import overlap_band
from nsa.config import NSAConfig

LANES = tl.constexpr(32)
MOST_IN_BLOCK = 16


@lru_cache
def sums_blocks(config: NSAConfig) -> bool:
    """Whether two numbers of each block make its score."""
    begin, rest = divmod(config.l_sel, config.d)
    power = begin & (begin - 1) == 0
    return not rest and power and 2 <= begin <= MOST_IN_BLOCK and config.l <= min(2 * config.d, config.l_sel)


@lru_cache
def overlap_width(config: NSAConfig) -> int:
    """The most compressed tokens that overlap one block."""
    return overlap_band(1, config)[1].shape[1]


@triton.jit
def candidates(i_first, C: tl.constexpr):
    """Blocks [C, 1, LANES] from i_first on."""
    return i_first + tl.arange(0, C)[:, None, None] * LANES + tl.arange(0, LANES)[None, None, :]


@triton.jit
def shared(o_first, L: tl.constexpr, LS: tl.constexpr):
    """Tokens of a block in the compressed token that begins o_first tokens after it."""
    return tl.minimum(o_first + L, LS) - tl.maximum(o_first, 0)


# --- sums of blocks ---


@triton.jit
def store_sums(
    b_p, p_row, i_key, i_end, LENGTH, L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, BN: tl.constexpr,
    TB: tl.constexpr,
):  # fmt: skip
    """The two numbers of each block of the tile b_p [BN, TB]: p of the compressed tokens from i_key on, 0 from i_end.

    p_row: the rows [TB, LENGTH], of each block its sum and what the token before it adds, side by side.
    """
    BEGIN: tl.constexpr = LS // D
    o_j = tl.arange(0, BN) % BEGIN
    b_shared = shared(tl.arange(0, BEGIN) * D, L, LS).to(tl.float32)
    b_block = tl.reshape(b_p, [BN // BEGIN, BEGIN, TB]) * b_shared[None, :, None]
    b_sum = tl.broadcast_to(tl.sum(b_block, 1)[:, None, :], [BN // BEGIN, BEGIN, TB])
    m_last = o_j == BEGIN - 1
    b_out = tl.where(m_last[:, None], b_p * (L - D), tl.reshape(b_sum, [BN, TB]))
    o_s = i_key + tl.arange(0, BN)
    o_out = o_s // BEGIN * 2 + tl.where(m_last, 3, 0)  # it adds to the block that follows
    m_out = ((o_j == 0) & (o_s < i_end)) | (m_last & (o_s < i_end) & (L > D))
    tl.store(p_row + tl.arange(0, TB)[None, :] * LENGTH + o_out[:, None], b_out, mask=m_out[:, None])


@triton.jit
def scores_of_sums(
    p_row, i_first, o_seen, L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr,
    INIT: tl.constexpr, LOCAL: tl.constexpr, TS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Scores [C, TS, LANES] of `candidates` from their two numbers; as `scores_of_probabilities`."""
    o_i = i_first * 2 + tl.arange(0, C)[:, None, None] * (LANES * 2) + tl.arange(0, LANES * 2)[None, None, :]
    # From two before the row on, loads seem aligned to pairs only: longer vectors would not leave a query in one warp.
    p_x = tl.max_contiguous((p_row - 2)[None, :, None] + (o_i + 2), [1, 2, LANES * 2])
    if (INIT > 0 and LOCAL > 0) and L > D:  # free blocks begin after the row does, and with a token that is seen
        b_x = tl.load(p_x)
    else:  # the token before the block is seen, or the first in it
        is_sum = o_i % 2 == 0
        first = o_i // 2 * (LS // D) - tl.where(is_sum, 0, 1)
        m_x = (first >= 0) & (first < o_seen[None, :, None]) & (is_sum | (L > D))
        b_x = tl.load(p_x, mask=m_x, other=0.0)
    return tl.sum(tl.reshape(b_x, [C, TS, LANES, 2]), 3)


# --- probabilities ---


@triton.jit
def store_probabilities(b_p, p_row, o_at, m_at, LENGTH, TB: tl.constexpr):
    """The tile b_p [BN, TB] to the numbers o_at [BN, TB] of the rows [TB, LENGTH]."""
    tl.store(p_row + tl.arange(0, TB)[None, :] * LENGTH + o_at, b_p, mask=m_at)


@triton.jit
def _weighted(p_row, o_i, b_shared, o_seen, ALL_SEEN: tl.constexpr):
    """p of the compressed tokens o_i [C, 1, LANES], times b_shared; 0 for those not seen."""
    p_x = tl.max_contiguous(p_row[None, :, None] + tl.maximum(o_i, 0), [1, 2, 4])
    m_i = (o_i >= 0) & (o_i < o_seen[None, :, None])
    b_p = tl.load(p_x) if ALL_SEEN else tl.load(p_x, mask=m_i, other=0.0)
    return b_p * b_shared.to(tl.float32)


@triton.jit
def scores_of_probabilities(
    p_row, i_first, o_seen,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, WIDTH: tl.constexpr, INIT: tl.constexpr, LOCAL: tl.constexpr,
    TS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Scores [C, TS, LANES] of `candidates`: overlap-weighted sums over the first o_seen p of the rows at p_row.

    p_row, o_seen: [TS]. Only the scores of blocks that are free to be chosen mean something, not those of the first
    INIT and the last LOCAL; but all of a chunk is read, from i_first on, which may be before the row's first number.
    """
    BEGIN: tl.constexpr = LS // D
    # All tokens that reach into free blocks exist and are seen, where the forced blocks are long enough.
    ALL_SEEN: tl.constexpr = INIT * BEGIN >= (L - 1) // D and (LOCAL - 1) * LS >= L - 1
    o_b = candidates(i_first, C)
    if LS % D == 0 and (BEGIN & (BEGIN - 1)) == 0:  # as many tokens begin in each block: one load has them all
        o_i = i_first * BEGIN + tl.arange(0, C)[:, None, None] * (LANES * BEGIN)
        o_i += tl.arange(0, LANES * BEGIN)[None, None, :]
        b_shared = shared(tl.arange(0, LANES * BEGIN) % BEGIN * D, L, LS)[None, None, :]
        p_x = tl.max_contiguous(p_row[None, :, None] + o_i, [1, 2, LANES * BEGIN])
        m_i = (o_i >= 0) & (o_i < o_seen[None, :, None])
        b_p = tl.load(p_x) if ALL_SEEN else tl.load(p_x, mask=m_i, other=0.0)
        b_score = tl.sum(tl.reshape(b_p * b_shared.to(tl.float32), [C, TS, LANES, BEGIN]), 3)
        for k in tl.static_range(1, (L - 1) // D + 1):  # those that begin earlier and reach into it
            b_score += _weighted(p_row, o_b * BEGIN - k, shared(o_b * 0 - k * D, L, LS), o_seen, ALL_SEEN)
    else:
        b_score = tl.zeros([C, TS, LANES], tl.float32)
        o_start = tl.maximum(o_b * LS - L + D, 0) // D
        for k in tl.static_range(WIDTH):
            b_shared = tl.maximum(shared((o_start + k) * D - o_b * LS, L, LS), 0)
            b_score += _weighted(p_row, o_start + k, b_shared, o_seen, False)
    return b_score
