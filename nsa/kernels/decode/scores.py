"""Scores of blocks in a decode step: what the first kernel leaves of them, and what the second makes of it.

Every tile of compressed tokens leaves sums of p = exp2(logit - zero) for each head, and that zero, a logit. Only when
all splits are done is a head's sum of exponentials known, by which its p are divided. What is left is either two
numbers of each block, as in `selection.scores`, or p of each compressed token.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.decode.rows import over_splits
from nsa.kernels.selection.scores import shared

RANGE = tl.constexpr(64.0)
"""Up to this size of a split's largest logit, in units of log 2, its tiles count from 0: equal tokens then have equal p
in all tiles, and blocks of equal scores tie. Beyond, p might leave fp32's range, and tiles count from that logit."""


@triton.jit
def leave_sums(
    b_s, b_m, p_sums, p_zero, HALF, i, i_hi, G: tl.constexpr, GP: tl.constexpr,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, BN: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """What the tile of the compressed tokens from i on leaves, with logits b_s [GP, BN], -inf from i_hi on.

    b_m: [GP], the largest logit so far, this tile's included.
    p_sums: [.., G] of blocks, then from HALF on what the token before a block adds to it; or of tokens.
    p_zero: [tiles, G].
    """
    o_head = tl.arange(0, GP)
    b_zero = tl.where(tl.abs(b_m) < RANGE, 0.0, b_m)
    tl.store(p_zero + i // BN * G + o_head, b_zero, mask=o_head < G)
    b_p = tl.math.exp2(b_s - b_zero[:, None])
    o_g = o_head[:, None]
    if BLOCKS:
        BEGIN: tl.constexpr = LS // D
        b_p = tl.reshape(b_p, [GP, BN // BEGIN, BEGIN])
        o_begin = tl.arange(0, BEGIN)[None, None, :]
        o_b = i // BEGIN + tl.arange(0, BN // BEGIN)[None, :]
        b_sum = tl.sum(b_p * shared(o_begin * D, L, LS).to(tl.float32), 2)
        tl.store(p_sums + o_b * G + o_g, b_sum, mask=(o_b * BEGIN < i_hi) & (o_g < G))
        if L > D:
            b_last = tl.sum(tl.where(o_begin == BEGIN - 1, b_p * (L - D), 0.0), 2)
            m_last = ((o_b + 1) * BEGIN <= i_hi) & (o_g < G)
            tl.store(p_sums + HALF + (o_b + 1) * G + o_g, b_last, mask=m_last)
    else:
        o_i = i + tl.arange(0, BN)[None, :]
        tl.store(p_sums + o_i * G + o_g, b_p, mask=(o_i < i_hi) & (o_g < G))


@triton.jit
def log_sums(p_m, p_l, i_bp, S, GP: tl.constexpr, SPLITS: tl.constexpr):
    """Log2 of each head's sum of exponentials over the S splits [GP]; 0 where there are no keys."""
    o_s = tl.arange(0, SPLITS)
    o_row = (i_bp * S + o_s).to(tl.int64)[:, None] * GP + tl.arange(0, GP)[None, :]
    b_m = tl.load(p_m + o_row, mask=(o_s < S)[:, None], other=float("-inf"))
    b_l = tl.load(p_l + o_row, mask=(o_s < S)[:, None], other=0.0)
    _, b_top, b_sum = over_splits(b_m, b_l, 0)
    return tl.where(b_sum > 0.0, b_top + tl.math.log2(tl.maximum(b_sum, 1e-30)), 0.0)


@triton.jit
def _load(p_sums, p_zero, o_x, m_x, o_i, G: tl.constexpr, GP: tl.constexpr, TILE: tl.constexpr):
    """Sums [N, GP] at o_x, and the zeros of the tiles that their compressed tokens o_i are in."""
    o_g = tl.arange(0, GP)[None, :]
    m_g = m_x[:, None] & (o_g < G)
    b_sum = tl.load(p_sums + o_x[:, None] * G + o_g, mask=m_g, other=0.0)
    b_zero = tl.load(p_zero + o_i[:, None] // TILE * G + o_g, mask=m_g, other=float("-inf"))
    return b_sum, b_zero


@triton.jit
def _over_heads(b_sum, b_zero, b_lse):
    """The sums [N, GP] as probabilities, summed over the heads [N]."""
    return tl.sum(b_sum * tl.math.exp2(b_zero - b_lse[None, :]), 1)


@triton.jit
def _scores_of_blocks(
    p_sums, p_zero, HALF, o_b, m_b, n, p_m, p_l, i_bp, S,
    G: tl.constexpr, GP: tl.constexpr, L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr,
    SPLITS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Scores [N] of the blocks o_b from their two numbers, where n compressed tokens are seen."""
    BEGIN: tl.constexpr = LS // D
    o_i = o_b * BEGIN
    b_sum, b_zero = _load(p_sums, p_zero, o_b, m_b & (o_i < n), o_i, G, GP, TILE)
    if L > D:
        m_before = m_b & (o_b > 0) & (o_i <= n)
        b_sum_before, b_zero_before = _load(p_sums + HALF, p_zero, o_b, m_before, o_i - 1, G, GP, TILE)
    b_lse = log_sums(p_m, p_l, i_bp, S, GP, SPLITS)
    b_score = _over_heads(b_sum, b_zero, b_lse)
    if L > D:
        b_score += _over_heads(b_sum_before, b_zero_before, b_lse)
    return b_score


@triton.jit
def _scores_of_tokens(
    p_sums, p_zero, p_summed, o_b, m_b, n, p_m, p_l, i_bp, S,
    G: tl.constexpr, GP: tl.constexpr, L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, SPLITS: tl.constexpr,
    TILE: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """As `_scores_of_blocks`, from p of each token: sums over the heads go to p_summed, then overlaps are added up.

    BT tokens are taken at once, then STEP of the WIDTH that may overlap a block.
    """
    i_lo = tl.maximum(tl.min(o_b, 0) * LS - L + D, 0) // D
    i_hi = tl.minimum(tl.cdiv((tl.max(tl.where(m_b, o_b, -1), 0) + 1) * LS, D), n)
    b_lse = log_sums(p_m, p_l, i_bp, S, GP, SPLITS)
    for i in range(i_lo, i_hi, BT):
        o_i = i + tl.arange(0, BT)
        b_sum, b_zero = _load(p_sums, p_zero, o_i, o_i < i_hi, o_i, G, GP, TILE)
        tl.store(p_summed + o_i, _over_heads(b_sum, b_zero, b_lse), mask=o_i < i_hi)
    tl.debug_barrier()  # other threads read it than wrote it
    b_score = tl.zeros(o_b.shape, tl.float32)
    o_start = tl.maximum(o_b * LS - L + D, 0) // D  # the first compressed token that reaches into the block
    for i in range(0, WIDTH, STEP):
        for k in tl.static_range(STEP):
            o_i = o_start + i + k  # one beyond WIDTH shares nothing
            b_shared = shared(o_i * D - o_b * LS, L, LS)
            b_p = tl.load(p_summed + o_i, mask=m_b & (o_i < n) & (b_shared > 0), other=0.0)
            b_score += b_p * b_shared.to(tl.float32)
    return b_score


@triton.jit
def scores(
    p_sums, p_zero, p_summed, HALF, o_b, m_b, n, p_m, p_l, i_bp, S,
    G: tl.constexpr, GP: tl.constexpr, L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, SPLITS: tl.constexpr,
    TILE: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr, BT: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """What the heads of (sequence, part) i_bp add to the scores [N] of the blocks o_b."""
    if BLOCKS:
        b_score = _scores_of_blocks(p_sums, p_zero, HALF, o_b, m_b, n, p_m, p_l, i_bp, S, G, GP, L, D, LS, SPLITS, TILE)
    else:
        b_score = _scores_of_tokens(
            p_sums, p_zero, p_summed, o_b, m_b, n, p_m, p_l, i_bp, S, G, GP, L, D, LS, SPLITS, TILE, WIDTH, STEP, BT
        )
    return b_score
