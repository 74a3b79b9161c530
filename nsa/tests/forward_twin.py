"""What `ranges.forward_gluon` does, in plain Triton, for tests without a GPU."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import pad_group
from nsa.kernels.common.softmax import begin, end, not_a_number, out_of_range
from nsa.kernels.common.tiles import LOG2E, load_pair, store_pair
from nsa.kernels.ranges.forward import SHARERS, TILES, _forward_step, strides_of
from nsa.kernels.ranges.key_ranges import KeyRanges


@launched
@triton.jit
def _attention(
    p_q, p_k, p_v, p_o, p_lse, p_again, p_lo, p_hi, s_range, T, S, H, B, N,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    WHICH: tl.constexpr, SHARERS: tl.constexpr,
):  # fmt: skip
    """One program: of one of N turns the tile of rows number WHICH; arguments as there."""
    TB: tl.constexpr = BM // GP
    x = tl.program_id(0)
    i_h = x % H
    i_b = (x // H % B).to(tl.int64)
    i_turn = N - 1 - x // (H * B)
    i_first = i_turn * SHARERS * TB
    i_last = tl.minimum(i_first + SHARERS * TB, T) - 1
    i_lo = tl.load(p_lo + i_b * s_range + i_first)
    n = tl.maximum(tl.cdiv(tl.load(p_hi + i_b * s_range + i_last) - i_lo, BN), 1)
    left = tl.minimum(tl.cdiv(tl.load(p_lo + i_b * s_range + i_last) - i_lo, BN), n)
    free = tl.maximum(left, tl.minimum((tl.load(p_hi + i_b * s_range + i_first) - i_lo) // BN, n - 1)) - left

    o_g = tl.arange(0, BM) % GP
    o_own = i_first + WHICH * TB + tl.arange(0, BM) // GP
    m_row = (o_own < T) & (o_g < G)
    o_t = tl.minimum(o_own, T - 1)
    b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_t * s_qt + (i_h * G + o_g) * s_qh, m_row, DK, True)
    b_lo, b_hi = tl.load(p_lo + i_b * s_range + o_t), tl.load(p_hi + i_b * s_range + o_t)
    b_m, b_l, b_o0, b_o1 = begin(BM, DV, False, False)
    for MASKED in tl.static_range(2):
        for j in range(0, (n - free) if MASKED else tl.maximum(free, 1)):
            i_key = i_lo + (tl.where(j < left, j, j + free) if MASKED else left + j) * BN
            b_m, b_l, b_o0, b_o1 = _forward_step(
                b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_key, S, p_k + i_b * s_kb + i_h * s_kh,
                p_v + i_b * s_vb + i_h * s_vh, None, None, None, None, 0, i_h, s_ks, s_vs, scale, DK, DV, BN, True,
                False, "ieee", False, False,
            )  # fmt: skip
    again = tl.maximum(out_of_range(b_l, m_row & (b_lo < b_hi)), not_a_number(b_o0, b_o1, DV))
    o_tile = ((i_b * H + i_h) * N + i_turn) * SHARERS + WHICH
    tl.store(p_again + o_tile, tl.where(free == 0, 1, again))
    b_f, b_lse = end(b_m, b_l)
    o_row = (i_b * T + o_t) * (H * G) + i_h * G + o_g
    store_pair(p_o, o_row * DV, m_row, b_o0 * b_f[:, None], b_o1 * b_f[:, None], DV, False)
    tl.store(p_lse + o_row, b_lse, mask=m_row)


def launch(
    q: Tensor, k: Tensor, v: Tensor, where: KeyRanges, scale: float, o: Tensor, lse: Tensor, again: Tensor
) -> None:
    """As `forward_gluon.launch`."""
    (batch, keys, heads, dk), tile, tokens = k.shape, TILES[k.shape[-1]], q.shape[1]
    group, turns = q.shape[2] // heads, again.shape[-1] // SHARERS
    for which in range(SHARERS):
        _attention[(turns * heads * batch,)](
            q, k, v, o, lse, again, where.lo, where.hi, where.s_query, tokens, keys, heads, batch, turns,
            *strides_of(q, k, v), scale * LOG2E.value, G=group, GP=pad_group(group), DK=dk, DV=v.shape[-1],
            BM=tile.BM, BN=tile.BN, WHICH=which, SHARERS=SHARERS, num_warps=4,
        )  # fmt: skip
