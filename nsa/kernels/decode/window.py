"""Attention of a decode step to a split of the window."""

from __future__ import annotations

import triton
import triton.language as tl

from nsa.kernels.decode.rows import begin, load_queries, logits_of, softmax_step, store_partial


@triton.jit
def window_split(
    p_q, p_wk, p_wv, p_m, p_l, p_a, p_seen, i_b, i_h, i_t, i_w, i_partial, H, s_qb, s_qh, scale,
    G: tl.constexpr, GP: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
    W: tl.constexpr, KEYS: tl.constexpr, BN: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Keys [i_w * KEYS, (i_w + 1) * KEYS) of the ring, as partial result number i_w from i_partial on."""
    b_q0, b_q1 = load_queries(p_q, i_b, i_h, s_qb, s_qh, G, GP, DK, DK0, DK1)
    b_m, b_l, b_a0, b_a1 = begin(GP, DV0, DV1)
    b_seen = tl.zeros([BN], tl.int32)
    i_lo = i_w * KEYS
    i_hi = tl.minimum(tl.minimum(i_lo + KEYS, W), i_t + 1)  # all that the ring holds; its order is no matter
    for i in range(i_lo, i_hi, BN):
        o_x = i + tl.arange(0, BN)
        m_key = o_x < i_hi
        o_row = (i_b.to(tl.int64) * W + o_x) * H + i_h
        b_s = logits_of(b_q0, b_q1, p_wk, o_row, m_key, scale, DK, DK0, DK1, PREC)
        b_m, b_l, b_a0, b_a1 = softmax_step(b_s, b_m, b_l, b_a0, b_a1, p_wv, o_row, m_key, DV, DV0, DV1, PREC)
        b_seen += m_key.to(tl.int32)
    store_partial(p_m, p_l, p_a, i_partial + i_w, b_m, b_l, b_a0, b_a1, G, GP, DV, DV0, DV1)
    tl.store(p_seen + i_partial + i_w, tl.sum(b_seen, 0))
