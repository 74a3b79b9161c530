"""Attention to key ranges for sm_90, forward, in Gluon, specialised by warps.

A program takes, in turn, the queries of SHARERS tiles of BM rows. One partition copies: queries of the next turn while
those of this one are multiplied, and BN keys and values at a time through a ring of NB slots. The others, a warpgroup
each, have a tile of rows each and read the same keys: while one computes exponentials, the others keep the tensor cores
busy. Nothing is subtracted from the logits (see `common.softmax`); which tiles must be computed again is noted for
`forward`.
"""

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from nsa.kernels.common.gluon import LOG2E, barriers, descriptor, load_tile, product
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import pad_group, split_dim
from nsa.kernels.common.softmax import LEAST, MOST, PARTS
from nsa.kernels.common.tma import key_tiles, query_tiles
from nsa.kernels.ranges import forward
from nsa.kernels.ranges.forward import TILES
from nsa.kernels.ranges.key_ranges import KeyRanges
from nsa.kernels.tuning.lookup import multiprocessors

SHARERS = gl.constexpr(forward.SHARERS)

REGISTERS = 160
"""Of a thread of theirs; the four warps that copy have the rest."""


@gluon.jit
def _turn(x, p_lo, p_hi, s_range, T, H, B, N, TB: gl.constexpr, BN: gl.constexpr):
    """The x-th turn, the last tokens first: KV head, batch entry, first token and first key.

    Of its n steps of BN keys `free` need no mask: those from the `left`-th on, which come first. There is always one
    that needs one, and where none is free one comes first all the same: ptxas makes operands of both loops' products
    before the first loop, and where that may be passed by the second has none.
    """
    i_h = x % H
    i_b = x // H % B
    i_first = (N - 1 - x // (H * B)) * (SHARERS * TB)
    i_last = gl.minimum(i_first + SHARERS * TB, T) - 1
    p_lo += i_b.to(gl.int64) * s_range
    p_hi += i_b.to(gl.int64) * s_range
    i_lo = gl.load(p_lo + i_first)
    n = gl.maximum(gl.cdiv(gl.load(p_hi + i_last) - i_lo, BN), 1)
    left = gl.minimum(gl.cdiv(gl.load(p_lo + i_last) - i_lo, BN), n)
    right = gl.maximum(left, gl.minimum((gl.load(p_hi + i_first) - i_lo) // BN, n - 1))
    return i_h, i_b, i_first, i_lo, left, right - left, n


@gluon.jit
def _masked_keys(i, i_lo, left, free, BN: gl.constexpr):
    """The first key of the i-th step that needs a mask: those on the left, then those on the right."""
    return i_lo + gl.where(i < left, i, i + free) * BN


# --- the partition that copies ---


@gluon.jit
def _copy(
    d_qs, d_ks, d_v, memory, where, S, G: gl.constexpr, GP: gl.constexpr, D0: gl.constexpr, D1: gl.constexpr,
    DV: gl.constexpr,
):  # fmt: skip
    qs, ks, v, q_bars, k_bars, v_bars = memory
    p_lo, p_hi, s_range, T, H, B, N = where
    TB: gl.constexpr = qs[0].type.shape[1]
    QB: gl.constexpr = qs[0].type.shape[0] // SHARERS
    NB: gl.constexpr = v.type.shape[0]
    BN: gl.constexpr = v.type.shape[1]
    done = 0
    for x in range(gl.program_id(0), N * H * B, gl.num_programs(0)):
        i_h, i_b, i_first, i_lo, left, free, n = _turn(x, p_lo, p_hi, s_range, T, H, B, N, TB, BN)
        i_turn = x // gl.num_programs(0)
        slot = i_turn % QB
        mbarrier.wait(q_bars[1].index(slot), (i_turn // QB & 1) ^ 1)
        bar = q_bars[0].index(slot)
        mbarrier.expect(bar, 2 * SHARERS * TB * GP * (D0 + D1))
        for i in gl.static_range(SHARERS):
            at = [i_b * T + i_first + i * TB, i_h * G, 0]
            load_tile(d_qs[0], at, bar, qs[0].index(slot * SHARERS + i))
            if D1 > 0:
                load_tile(d_qs[1], [at[0], at[1], D0], bar, qs[1].index(slot * SHARERS + i))
        plain = gl.maximum(free, 1)
        for j in range(plain + n - free):
            k_slot = done % NB
            phase = (done // NB & 1) ^ 1
            i_row = i_b * S + gl.where(j < plain, i_lo + (left + j) * BN, _masked_keys(j - plain, i_lo, left, free, BN))
            mbarrier.wait(k_bars[1].index(k_slot), phase)
            k_bar = k_bars[0].index(k_slot)
            mbarrier.expect(k_bar, 2 * BN * (D0 + D1))
            load_tile(d_ks[0], [i_row, i_h * (D0 + D1)], k_bar, ks[0].index(k_slot))
            if D1 > 0:
                load_tile(d_ks[1], [i_row, i_h * (D0 + D1) + D0], k_bar, ks[1].index(k_slot))
            mbarrier.wait(v_bars[1].index(k_slot), phase)
            v_bar = v_bars[0].index(k_slot)
            mbarrier.expect(v_bar, 2 * BN * DV)
            load_tile(d_v, [i_row, i_h * DV], v_bar, v.index(k_slot))
            done += 1


# --- the partitions that compute ---


@gluon.jit
def _step(
    done, b_l, b_o, b_q0, b_q1, ks, v, k_bars, v_bars, b_lo, b_hi, i_key, scale, MASKED: gl.constexpr,
    D1: gl.constexpr,
):  # fmt: skip
    """BN keys from i_key on, in slot `done` of the ring."""
    NB: gl.constexpr = v.type.shape[0]
    BN: gl.constexpr = v.type.shape[1]
    BM: gl.constexpr = b_o.shape[0]
    S_L: gl.constexpr = product(BM, BN, gl.num_warps())
    slot = done % NB
    phase = done // NB & 1
    mbarrier.wait(k_bars[0].index(slot), phase)
    b_k = ks[0].index(slot).permute((1, 0))
    b_s = warpgroup_mma(b_q0, b_k, gl.zeros([BM, BN], gl.float32, S_L), use_acc=False, is_async=True)
    if D1 > 0:
        b_s = warpgroup_mma(b_q1, ks[1].index(slot).permute((1, 0)), b_s, is_async=True)
    b_s = warpgroup_mma_wait(0, [b_s])
    mbarrier.arrive(k_bars[1].index(slot), count=1)
    b_p = gl.exp2(b_s * scale)
    if MASKED:
        o_s = gl.expand_dims(i_key + gl.arange(0, BN, gl.SliceLayout(0, S_L)), 0)
        b_p = gl.where((o_s >= gl.expand_dims(b_lo, 1)) & (o_s < gl.expand_dims(b_hi, 1)), b_p, 0.0)
    b_l += gl.sum(b_p.reshape([BM, BN // PARTS, PARTS]), 1)
    LEFT: gl.constexpr = gl.DotOperandLayout(0, b_o.type.layout, 2)
    b_left = gl.convert_layout(b_p.to(v.dtype), LEFT, assert_trivial=True)
    mbarrier.wait(v_bars[0].index(slot), phase)
    b_o = warpgroup_mma(b_left, v.index(slot), b_o, is_async=True)
    b_o = warpgroup_mma_wait(0, [b_o])
    mbarrier.arrive(v_bars[1].index(slot), count=1)
    return b_l, b_o


@gluon.jit
def _leave(
    b_l, b_o, b_reads, tile, p_o, p_lse, i_b, i_mine, i_h, T, H, G: gl.constexpr, GP: gl.constexpr, DV: gl.constexpr,
):  # fmt: skip
    """Store o, by way of `tile` in shared memory, and lse of the rows from token i_mine on.

    Returns:
        1 if a row's sum of those that read something (b_reads) is out of range, or a value is not a number, else 0.
    """
    BM: gl.constexpr = b_o.shape[0]
    of_row: gl.constexpr = b_reads.type.layout
    W_L: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DV, DV // 8], [gl.num_warps(), 1], [1, 0])
    b_sum = gl.convert_layout(gl.sum(b_l, 1), of_row)
    b_f = gl.where(b_sum > 0, 1.0 / b_sum, 0.0)
    b_o = b_o * gl.expand_dims(gl.convert_layout(b_f, gl.SliceLayout(1, b_o.type.layout)), 1)
    b_none = gl.convert_layout(gl.sum(b_o, 1), of_row)
    o_r = gl.arange(0, BM, of_row)
    m_row = (i_mine + o_r // GP < T) & (o_r % GP < G)
    o_row = (i_b.to(gl.int64) * T + i_mine + o_r // GP) * (H * G) + i_h * G + o_r % GP
    gl.store(p_lse + o_row, gl.log2(b_sum) / LOG2E, mask=m_row)
    b_out = (b_reads & (((b_sum >= LEAST) & (b_sum <= MOST)) == 0)) | (b_none != b_none)

    tile.store(b_o.to(tile.dtype))
    b_w = tile.load(W_L)
    o_w = gl.arange(0, BM, gl.SliceLayout(1, W_L))
    m_w = (i_mine + o_w // GP < T) & (o_w % GP < G)
    o_w = (i_b.to(gl.int64) * T + i_mine + o_w // GP) * (H * G) + i_h * G + o_w % GP
    o_c = gl.arange(0, DV, gl.SliceLayout(0, W_L))
    gl.store(p_o + gl.expand_dims(o_w * DV, 1) + gl.expand_dims(o_c, 0), b_w, mask=gl.expand_dims(m_w, 1))
    fence_async_shared()  # TMA is to write there next
    return gl.max((m_row & b_out).to(gl.int32), 0)


@gluon.jit
def _attend(
    memory, where, outs, scale, WHICH: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, D0: gl.constexpr,
    D1: gl.constexpr, DV: gl.constexpr,
):  # fmt: skip
    """Of each turn, the tile of rows number WHICH."""
    qs, ks, v, q_bars, k_bars, v_bars = memory
    p_lo, p_hi, s_range, T, H, B, N = where
    p_o, p_lse, p_again = outs
    TB: gl.constexpr = qs[0].type.shape[1]
    QB: gl.constexpr = qs[0].type.shape[0] // SHARERS
    BM: gl.constexpr = TB * GP
    BN: gl.constexpr = v.type.shape[1]
    S_L: gl.constexpr = product(BM, BN, gl.num_warps())
    of_row: gl.constexpr = gl.SliceLayout(1, S_L)
    done = 0
    for x in range(gl.program_id(0), N * H * B, gl.num_programs(0)):
        i_h, i_b, i_first, i_lo, left, free, n = _turn(x, p_lo, p_hi, s_range, T, H, B, N, TB, BN)
        i_turn = x // gl.num_programs(0)
        slot = i_turn % QB
        i_mine = i_first + WHICH * TB
        o_t = gl.minimum(i_mine + gl.arange(0, BM, of_row) // GP, T - 1)
        b_lo = gl.load(p_lo + i_b.to(gl.int64) * s_range + o_t)
        b_hi = gl.load(p_hi + i_b.to(gl.int64) * s_range + o_t)
        b_l = gl.sum(gl.zeros([BM, BN], gl.float32, S_L).reshape([BM, BN // PARTS, PARTS]), 1)
        b_o = gl.zeros([BM, DV], gl.float32, product(BM, DV, gl.num_warps()))
        mbarrier.wait(q_bars[0].index(slot), i_turn // QB & 1)
        b_q0 = qs[0].index(slot * SHARERS + WHICH).reshape((BM, D0))
        b_q1 = b_q0
        if D1 > 0:
            b_q1 = qs[1].index(slot * SHARERS + WHICH).reshape((BM, D1))
        plain = gl.maximum(free, 1)
        gl.assume(plain > 0)
        gl.assume(n > free)
        for j in range(plain):
            b_l, b_o = _step(
                done, b_l, b_o, b_q0, b_q1, ks, v, k_bars, v_bars, b_lo, b_hi, i_lo + (left + j) * BN, scale, False, D1
            )
            done += 1
        for j in range(n - free):
            i_key = _masked_keys(j, i_lo, left, free, BN)
            b_l, b_o = _step(done, b_l, b_o, b_q0, b_q1, ks, v, k_bars, v_bars, b_lo, b_hi, i_key, scale, True, D1)
            done += 1
        again = _leave(b_l, b_o, b_lo < b_hi, b_q0, p_o, p_lse, i_b, i_mine, i_h, T, H, G, GP, DV)
        mbarrier.arrive(q_bars[1].index(slot), count=1)
        o_tile = ((i_b * H + i_h) * N + i_first // (SHARERS * TB)) * SHARERS + WHICH
        gl.store(p_again + o_tile, gl.where(free == 0, 1, again))


# --- the kernel ---


@launched
@gluon.jit(do_not_specialize=["s_range", "T", "S", "H", "B", "N"])
def _attention(
    d_q0, d_q1, d_k0, d_k1, d_v, p_o, p_lse, p_again, p_lo, p_hi, s_range, T, S, H, B, N, scale,
    G: gl.constexpr, GP: gl.constexpr, D0: gl.constexpr, D1: gl.constexpr, DV: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, QB: gl.constexpr, NB: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """N turns of each KV head and batch entry.

    Args:
        p_o, p_lse: [B,T,H*G,DV] and fp32 [B,T,H*G], natural.
        p_again: int32 [B,H,N,SHARERS]: 1 for the tiles of rows that must be computed again, else 0.
        p_lo, p_hi: the keys of each token, as `KeyRanges` has them.

    `tests/forward_twin.py` computes the same in plain Triton.
    """
    dtype: gl.constexpr = d_v.dtype
    q0 = gl.allocate_shared_memory(dtype, [QB * SHARERS, BM // GP, GP, D0], d_q0.layout)
    k0 = gl.allocate_shared_memory(dtype, [NB, BN, D0], d_k0.layout)
    v = gl.allocate_shared_memory(dtype, [NB, BN, DV], d_v.layout)
    q1, k1 = q0, k0
    if D1 > 0:
        q1 = gl.allocate_shared_memory(dtype, [QB * SHARERS, BM // GP, GP, D1], d_q1.layout)
        k1 = gl.allocate_shared_memory(dtype, [NB, BN, D1], d_k1.layout)
    q_bars = (barriers(QB, 1), barriers(QB, SHARERS))
    k_bars = (barriers(NB, 1), barriers(NB, SHARERS))
    v_bars = (barriers(NB, 1), barriers(NB, SHARERS))
    fence_async_shared()
    memory = ((q0, q1), (k0, k1), v, q_bars, k_bars, v_bars)
    where, outs, scale = (p_lo, p_hi, s_range, T, H, B, N), (p_o, p_lse, p_again), scale * LOG2E
    gl.warp_specialize(
        [
            (_copy, ((d_q0, d_q1), (d_k0, d_k1), d_v, memory, where, S, G, GP, D0, D1, DV)),
            (_attend, (memory, where, outs, scale, 0, G, GP, D0, D1, DV)),
            (_attend, (memory, where, outs, scale, 1, G, GP, D0, D1, DV)),
            (_attend, (memory, where, outs, scale, 2, G, GP, D0, D1, DV)),
        ],
        [4, 4, 4],
        [REGISTERS, REGISTERS, REGISTERS],
    )


# --- launching ---

AHEAD = {64: 2, 128: 2, 192: 1}
"""Turns whose queries are loaded, by Dk."""


def launch(
    q: Tensor, k: Tensor, v: Tensor, where: KeyRanges, scale: float, o: Tensor, lse: Tensor, again: Tensor
) -> None:
    """Fill o [B,T,Hq,Dv] and lse, fp32 [B,T,Hq], but for the tiles of tokens that `again` says, int32 [B,Hkv,tiles].

    q, k and v as `tma.describable` wants them.
    """
    (batch, keys, heads, dk), tile = k.shape, TILES[k.shape[-1]]
    group = q.shape[2] // heads
    padded = pad_group(group)
    first, second = split_dim(dk)
    turns = again.shape[-1] // SHARERS.value
    how = {"make": descriptor}
    (v0, _) = key_tiles(v, tile.BN, **how)
    _attention[(min(turns * heads * batch, multiprocessors(q.device)),)](
        *query_tiles(q, tile.BM // padded, padded, **how), *key_tiles(k, tile.BN, **how), v0, o, lse, again, where.lo,
        where.hi, where.s_query, q.shape[1], keys, heads, batch, turns, scale, G=group, GP=padded, D0=first, D1=second,
        DV=v.shape[-1], BM=tile.BM, BN=tile.BN, QB=AHEAD[dk], NB=tile.num_stages, REGISTERS=REGISTERS,
        num_warps=tile.num_warps,
    )  # fmt: skip
