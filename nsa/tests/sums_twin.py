"""What `selection.sums_gluon` leaves of each block, in plain Triton, for tests without a GPU."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, pad_group
from nsa.kernels.common.tiles import LOG2E, dot_rows, load_pair
from nsa.kernels.ranges.key_ranges import KeyRanges
from nsa.kernels.selection.scores import store_sums
from nsa.kernels.selection.select import over_heads, paired_rows
from nsa.kernels.selection.sums import TILES


@launched
@triton.jit
def _sums(
    p_q, p_k, p_lse, p_sums, BEFORE, p_hi, s_range, FIRST, COUNT, T, S, H, B, N, ROOM, LENGTH,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """One program: one of N tiles of queries of a KV head; arguments as there."""
    TB: tl.constexpr = BM // GP
    x = tl.program_id(0)
    i_h = x % H
    i_b = (x // H % B).to(tl.int64)
    i_first = FIRST + (N - 1 - x // (H * B)) * TB
    o_query, o_g = paired_rows(BM, GP)
    o_t = i_first + o_query
    m_row = (o_t < T) & (o_g < G)
    b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_t * s_qt + (i_h * G + o_g) * s_qh, m_row, DK, True)
    b_lse = tl.load(p_lse + (i_b * T + o_t) * (H * G) + i_h * G + o_g, mask=m_row, other=float("-inf"))
    b_lse = tl.where(b_lse == float("-inf"), float("inf"), b_lse * LOG2E)
    o_own = i_first + tl.arange(0, TB)
    b_seen = tl.load(p_hi + i_b * s_range + o_own, mask=o_own < T, other=0)
    n_keys = tl.load(p_hi + i_b * s_range + tl.minimum(tl.minimum(i_first + TB, FIRST + COUNT), T) - 1)
    p_row = p_sums + BEFORE + ((i_b * H + i_h) * ROOM + i_first - FIRST) * LENGTH
    for j in range(tl.cdiv(n_keys, BN)):
        o_s = j * BN + tl.arange(0, BN)
        b_k0, b_k1 = load_pair(p_k + i_b * s_kb + i_h * s_kh, o_s * s_ks, o_s < S, DK, True)
        b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK, "ieee") * (scale * LOG2E) - b_lse[None, :])
        b_p = tl.where(o_s[:, None] < b_seen[None, :], over_heads(b_p, BN, TB, GP), 0.0)
        store_sums(b_p, p_row, j * BN, n_keys, LENGTH, L, D, LS, BN, TB)


def launch(
    q: Tensor, k_cmp: Tensor, config: NSAConfig, scale: float, where: KeyRanges, lse: Tensor, sums: Tensor,
    before: int, first: int, count: int,
) -> None:  # fmt: skip
    """As `sums_gluon.launch`."""
    tile, (batch, keys, heads, dk) = TILES[q.shape[-1]], k_cmp.shape
    group = q.shape[2] // heads
    n = cdiv(count, tile.BM // pad_group(group))
    _sums[(n * heads * batch,)](
        q, k_cmp, lse, sums, before, where.hi, where.s_query, first, count, q.shape[1], keys, heads, batch, n,
        sums.shape[2], sums.shape[3], *q.stride()[:3], *k_cmp.stride()[:3], scale,
        G=group, GP=pad_group(group), DK=dk, L=config.l, D=config.d, LS=config.l_sel, BM=tile.BM, BN=tile.BN,
        num_warps=4,
    )  # fmt: skip
