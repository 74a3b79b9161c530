"""The fused gradient of attention to ranges of keys in plain Triton: what `fused_gluon` computes, as the same work.

It is what the interpreter runs in its place. On a GPU it would gain nothing over two kernels, which do two products
more: what makes the fused gradient fast is how its warps share the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from nsa.kernels.common.launch import launched
from nsa.kernels.common.tiles import LOG2E, cdiv, dot_rows, load_pair, pad_group, widths

if TYPE_CHECKING:
    from nsa.kernels.ranges.fused import Piece


@triton.jit
def _add_tile(p_x, o_row, m_row, b_x, START: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, ADD: tl.constexpr):
    """Store b_x [R, WIDTH] in columns START onwards of its rows, or add it to them."""
    o_column = START + tl.arange(0, WIDTH)
    p_tile, m_tile = p_x + o_row[:, None] + o_column[None, :], m_row[:, None] & (o_column[None, :] < D)
    if ADD:
        tl.atomic_add(p_tile, b_x, mask=m_tile, sem="relaxed")
    else:
        tl.store(p_tile, b_x.to(p_x.dtype.element_ty), mask=m_tile)


@launched
@triton.jit(do_not_specialize=["T", "S", "H", "H0", "NH", "B", "SPLIT", "SPLITS", "s_range", "s_stats"])
def _backward_qkv(
    p_q, p_k, p_v, p_do, p_stats, p_dq, p_dk, p_dv, p_qlo, p_qhi, s_range, s_stats, T, S, H, H0, NH, B, SPLIT, SPLITS,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, ADD: tl.constexpr,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, DV: tl.constexpr, DV0: tl.constexpr, DV1: tl.constexpr,
):  # fmt: skip
    """One program: BN keys of one of the NH KV heads from H0 on, and one split, SPLIT tokens, of the queries.

    The last split comes first, because its queries read the most compressed keys; the key tiles of a split come one
    after another, so that all of them add to the same rows of dq at the same time.

    Args:
        p_stats: fp32 [2,B,H,s_stats], see `backward_preprocess`.
        p_dq: fp32 [B,T,NH*G,DK]; scale * dq is the gradient. It is added to.
        p_dk, p_dv: [B,S,H,D*]; with ADD fp32, and added to; else every key is written.
    """
    TB: tl.constexpr = BM // GP
    tiles = tl.cdiv(S, BN)
    i_item = tl.program_id(0)
    i_first = i_item % tiles * BN
    i_local = i_item // tiles % NH
    i_h = H0 + i_local
    i_b = (i_item // (tiles * NH) % B).to(tl.int64)
    i_begin = (SPLITS - 1 - i_item // (tiles * NH * B)) * SPLIT
    i_end = tl.minimum(i_begin + SPLIT, T)
    p_qlo += i_b * s_range
    p_qhi += i_b * s_range
    i_last = tl.minimum(i_first + BN, S) - 1
    i_lo = tl.maximum(tl.load(p_qlo + i_first), i_begin) // TB * TB
    n = tl.cdiv(tl.maximum(tl.minimum(tl.load(p_qhi + i_last), i_end) - i_lo, 0), TB)
    if not ADD:
        n = tl.maximum(n, 1)  # keys that no query reads are written, too
    # All programs with as many tiles begin such that they come to the same tokens at the same time, while these are in
    # the level-2 cache: neighbouring key tiles of a window share most of their queries.
    i_tile = (n - i_lo // TB % tl.maximum(n, 1)) % tl.maximum(n, 1)

    o_s = i_first + tl.arange(0, BN)  # [BN]
    m_s = o_s < S
    b_qlo = tl.load(p_qlo + o_s, mask=m_s, other=T)
    b_qhi = tl.minimum(tl.load(p_qhi + o_s, mask=m_s, other=0), i_end)
    o_at = o_s.to(tl.int64)
    b_k0, b_k1 = load_pair(p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh, o_at * s_ks, m_s, DK, DK0, DK1, True)  # [BN, DK]
    b_v0, b_v1 = load_pair(p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh, o_at * s_vs, m_s, DV, DV0, DV1, True)  # [BN, DV]
    b_dk0 = tl.zeros([BN, DK0], tl.float32)
    b_dk1 = tl.zeros([BN, DK1 if DK1 > 0 else 16], tl.float32)
    b_dv0 = tl.zeros([BN, DV0], tl.float32)
    b_dv1 = tl.zeros([BN, DV1 if DV1 > 0 else 16], tl.float32)
    o_g = tl.arange(0, BM) % GP  # [BM]
    p_lse = p_stats + (i_b * H + i_h) * s_stats
    for _ in range(n):
        o_t = i_lo + i_tile * TB + tl.arange(0, BM) // GP
        m_row = (o_t < T) & (o_g < G)
        o_head = o_t.to(tl.int64) * (H * G) + i_h * G + o_g + i_b * T * (H * G)
        b_q0, b_q1 = load_pair(
            p_q + i_b * s_qb, o_t.to(tl.int64) * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh, m_row, DK, DK0, DK1, True
        )
        b_do0, b_do1 = load_pair(p_do, o_head * DV, m_row, DV, DV0, DV1, True)
        o_number = o_t.to(tl.int64) * GP + o_g
        b_lse = tl.load(p_lse + o_number, mask=m_row, other=float("inf"))
        b_delta = tl.load(p_lse + B * H * s_stats + o_number, mask=m_row, other=0.0)
        b_sign = tl.where((b_delta.to(tl.int32, bitcast=True) & 1) != 0, -1.0, 1.0)
        b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK1, "ieee") * (scale * LOG2E) - b_lse[None, :])  # [BN, BM]
        b_p = tl.where((o_t[None, :] >= b_qlo[:, None]) & (o_t[None, :] < b_qhi[:, None]), b_p * b_sign[None, :], 0.0)
        b_ds = b_p * (dot_rows(b_v0, b_v1, b_do0, b_do1, DV1, "ieee") - b_delta[None, :])  # [BN, BM]
        b_p, b_ds = b_p.to(b_do0.dtype), b_ds.to(b_q0.dtype)
        b_dv0 = tl.dot(b_p, b_do0, b_dv0)
        b_dk0 = tl.dot(b_ds, b_q0, b_dk0)
        o_dq = ((i_b * T + o_t) * (NH * G) + i_local * G + o_g) * DK
        _add_tile(p_dq, o_dq, m_row, tl.dot(tl.trans(b_ds), b_k0), 0, DK0, DK, True)
        if DK1 > 0:
            b_dk1 = tl.dot(b_ds, b_q1, b_dk1)
            _add_tile(p_dq, o_dq, m_row, tl.dot(tl.trans(b_ds), b_k1), DK0, DK1, DK, True)
        if DV1 > 0:
            b_dv1 = tl.dot(b_p, b_do1, b_dv1)
        i_tile = tl.where(i_tile + 1 < n, i_tile + 1, 0)

    o_row = (i_b * S + o_s) * H + i_h  # [BN]
    if n > 0:
        _add_tile(p_dk, o_row * DK, m_s, b_dk0 * scale, 0, DK0, DK, ADD)
        _add_tile(p_dv, o_row * DV, m_s, b_dv0, 0, DV0, DV, ADD)
        if DK1 > 0:
            _add_tile(p_dk, o_row * DK, m_s, b_dk1 * scale, DK0, DK1, DK, ADD)
        if DV1 > 0:
            _add_tile(p_dv, o_row * DV, m_s, b_dv1, DV0, DV1, DV, ADD)


def launch(piece: Piece) -> None:
    """Run the kernel."""
    q, k, v, tile = piece.q, piece.k, piece.v, piece.tile
    batch, keys, heads, dk = k.shape
    group = q.shape[2] // heads
    _backward_qkv[(cdiv(keys, tile.BN) * piece.heads * batch * piece.splits,)](
        q, k, v, piece.do, piece.stats, piece.dq, piece.dk, piece.dv, piece.where.q_lo, piece.where.q_hi,
        piece.where.s_key, piece.stats.stride(2), q.shape[1], keys, heads, piece.first, piece.heads, batch, piece.split,
        piece.splits, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], piece.scale,
        G=group, GP=pad_group(group), BM=tile.BM, BN=tile.BN, ADD=piece.adds, **widths(dk, v.shape[-1]), num_warps=4,
    )  # fmt: skip
