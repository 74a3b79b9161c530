"""The two numbers of each block (see `scores`) for sm_90, in Gluon, specialised by warps.

A program takes tiles of BM rows of queries in turn. One partition copies: the rows of the next tile while those of this
one are multiplied, and tiles of BN compressed keys through a ring of NB slots. Three more, a warpgroup each, take every
third tile of keys: while one computes exponentials, which take as long as the products, the others keep the tensor
cores busy. Keys are rows of the product, and the heads of a query are in one thread, as in `select`.
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

from nsa.config import NSAConfig
from nsa.kernels.common.gluon import LOG2E, barriers, descriptor, load_tile, product
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, pad_group, split_dim
from nsa.kernels.common.tma import key_tiles, query_tiles
from nsa.kernels.ranges.key_ranges import KeyRanges
from nsa.kernels.selection.sums import TILES
from nsa.kernels.tuning.lookup import multiprocessors

SHARERS = gl.constexpr(3)
"""Warpgroups that share out the tiles of keys."""

REGISTERS = 160
"""Of a thread of theirs; the four warps that copy have the rest."""


@gluon.jit
def _tile(x, p_hi, s_range, FIRST, COUNT, T, H, B, N, TB: gl.constexpr):
    """The x-th tile of queries, the last ones first: KV head, batch entry, first query, and how many keys it reads."""
    i_h = x % H
    i_b = x // H % B
    i_first = FIRST + (N - 1 - x // (H * B)) * TB
    i_last = gl.minimum(gl.minimum(i_first + TB, FIRST + COUNT), T) - 1
    return i_h, i_b, i_first, gl.load(p_hi + i_b.to(gl.int64) * s_range + i_last, mask=x < N * H * B, other=0)


# --- the partition that copies ---


@gluon.jit
def _copy(d_qs, d_ks, memory, where, p_lse, S, G: gl.constexpr, GP: gl.constexpr, D0: gl.constexpr, D1: gl.constexpr):
    qs, ks, lse, seen, q_full, q_empty, full, empty = memory
    p_hi, s_range, FIRST, COUNT, T, H, B, N = where
    QB: gl.constexpr = lse.type.shape[0]
    BM: gl.constexpr = lse.type.shape[1]
    TB: gl.constexpr = BM // GP
    PAIR: gl.constexpr = min(GP, 2)
    NB: gl.constexpr = ks[0].type.shape[0]
    BN: gl.constexpr = ks[0].type.shape[1]
    o_r = gl.arange(0, BM, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    o_query = o_r // PAIR % TB
    o_head = o_r // (PAIR * TB) * PAIR + o_r % PAIR
    o_t = gl.arange(0, TB, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    done = 0
    for x in range(gl.program_id(0), N * H * B, gl.num_programs(0)):
        i_h, i_b, i_first, n_keys = _tile(x, p_hi, s_range, FIRST, COUNT, T, H, B, N, TB)
        i_tile = x // gl.num_programs(0)
        slot = i_tile % QB
        m_row = (i_first + o_query < T) & (o_head < G)
        o_row = (i_b.to(gl.int64) * T + i_first + o_query) * (H * G) + i_h * G + o_head
        b_lse = gl.load(p_lse + o_row, mask=m_row, other=float("-inf"))
        b_lse = gl.where(b_lse == float("-inf"), float("inf"), b_lse * LOG2E)  # a row without keys: p = 0
        m_t = i_first + o_t < T
        b_seen = gl.load(p_hi + i_b.to(gl.int64) * s_range + i_first + o_t, mask=m_t, other=0)
        mbarrier.wait(q_empty.index(slot), (i_tile // QB & 1) ^ 1)
        bar = q_full.index(slot)
        mbarrier.expect(bar, 2 * BM * (D0 + D1))
        for i in gl.static_range(GP // PAIR):
            at = [i_b * T + i_first, i_h * G + i * PAIR, 0]
            load_tile(d_qs[0], at, bar, qs[0].index(slot).slice(i * TB, TB))
            if D1 > 0:
                load_tile(d_qs[1], [at[0], at[1], D0], bar, qs[1].index(slot).slice(i * TB, TB))
        lse.index(slot).store(b_lse)
        seen.index(slot).store(b_seen)
        mbarrier.arrive(bar, count=1)
        for j in range(gl.cdiv(n_keys, BN)):
            k_slot = done % NB
            mbarrier.wait(empty.index(k_slot), (done // NB & 1) ^ 1)
            k_bar = full.index(k_slot)
            mbarrier.expect(k_bar, 2 * BN * (D0 + D1))
            load_tile(d_ks[0], [i_b * S + j * BN, i_h * (D0 + D1)], k_bar, ks[0].index(k_slot))
            if D1 > 0:
                load_tile(d_ks[1], [i_b * S + j * BN, i_h * (D0 + D1) + D0], k_bar, ks[1].index(k_slot))
            done += 1


# --- the partitions that compute ---


@gluon.jit
def _score(
    memory, where, out, scale, WHICH: gl.constexpr, GP: gl.constexpr, D0: gl.constexpr, D1: gl.constexpr,
    L: gl.constexpr, D: gl.constexpr, LS: gl.constexpr,
):  # fmt: skip
    """Every third tile of keys, of all that the program takes."""
    qs, ks, lse, seen, q_full, q_empty, full, empty = memory
    p_hi, s_range, FIRST, COUNT, T, H, B, N = where
    p_sums, ROOM, LENGTH = out
    QB: gl.constexpr = lse.type.shape[0]
    BM: gl.constexpr = lse.type.shape[1]
    TB: gl.constexpr = BM // GP
    PAIR: gl.constexpr = min(GP, 2)
    NB: gl.constexpr = ks[0].type.shape[0]
    BN: gl.constexpr = ks[0].type.shape[1]
    BEGIN: gl.constexpr = LS // D
    S_L: gl.constexpr = product(BN, BM, gl.num_warps())
    done = 0
    i_h, i_b, i_first, n_keys = _tile(gl.program_id(0), p_hi, s_range, FIRST, COUNT, T, H, B, N, TB)
    for x in range(gl.program_id(0), N * H * B, gl.num_programs(0)):
        next_h, next_b, next_first, next_keys = _tile(
            x + gl.num_programs(0), p_hi, s_range, FIRST, COUNT, T, H, B, N, TB
        )
        i_tile = x // gl.num_programs(0)
        slot = i_tile % QB
        mbarrier.wait(q_full.index(slot), i_tile // QB & 1)
        b_lse = gl.expand_dims(lse.index(slot).load(gl.SliceLayout(0, S_L)), 0)
        n = gl.cdiv(n_keys, BN)
        p_mine = p_sums + ((i_b * H + i_h).to(gl.int64) * ROOM + i_first - FIRST) * LENGTH
        for j in range((WHICH + SHARERS - done % SHARERS) % SHARERS, n, SHARERS):
            k_slot = (done + j) % NB
            mbarrier.wait(full.index(k_slot), (done + j) // NB & 1)
            b_q = qs[0].index(slot).reshape((BM, D0)).permute((1, 0))
            b_s = warpgroup_mma(
                ks[0].index(k_slot), b_q, gl.zeros([BN, BM], gl.float32, S_L), use_acc=False, is_async=True
            )
            if D1 > 0:
                b_q = qs[1].index(slot).reshape((BM, D1)).permute((1, 0))
                b_s = warpgroup_mma(ks[1].index(k_slot), b_q, b_s, is_async=True)
            b_s = warpgroup_mma_wait(0, [b_s])
            mbarrier.arrive(empty.index(k_slot), count=1)
            b_p = gl.exp2(b_s * scale - b_lse)  # [BN, BM]
            if GP > 1:
                b_p = gl.sum(gl.sum(b_p.reshape([BN, GP // PAIR, TB, PAIR]), 3), 1)
            b_p = b_p.reshape([BN // BEGIN, BEGIN, TB])
            P_L: gl.constexpr = b_p.type.layout
            of_block: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, P_L))
            of_token: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, P_L))
            of_query: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, P_L))
            o_block = gl.expand_dims(gl.expand_dims(gl.arange(0, BN // BEGIN, of_block), 1), 2)
            o_j = gl.expand_dims(gl.expand_dims(gl.arange(0, BEGIN, of_token), 0), 2)
            o_t = gl.expand_dims(gl.expand_dims(gl.arange(0, TB, of_query), 0), 1)
            b_seen = gl.expand_dims(gl.expand_dims(seen.index(slot).load(of_query), 0), 1)
            o_s = j * BN + o_block * BEGIN + o_j
            b_p = gl.where(o_s < b_seen, b_p, 0.0)
            b_shared = gl.minimum(o_j * D + L, LS) - o_j * D
            b_sum = gl.expand_dims(gl.sum(b_p * b_shared.to(gl.float32), 1), 1)
            is_last = o_j == BEGIN - 1
            b_out = gl.where(is_last, b_p * (L - D), b_sum)
            o_out = (j * (BN // BEGIN) + o_block) * 2 + gl.where(is_last, 3, 0)  # it adds to the block that follows
            m_out = (o_s < n_keys) & ((o_j == 0) | (is_last & (L > D)))
            gl.store(p_mine + o_t * LENGTH + o_out, b_out, mask=m_out)
        done += n
        mbarrier.arrive(q_empty.index(slot), count=1)
        i_h, i_b, i_first, n_keys = next_h, next_b, next_first, next_keys


# --- the kernel ---


@launched
@gluon.jit(do_not_specialize=["BEFORE", "FIRST", "COUNT", "T", "S", "H", "B", "N", "s_range", "ROOM"])
def _sums(
    d_q0, d_q1, d_k0, d_k1, p_lse, p_sums, BEFORE, p_hi, s_range, FIRST, COUNT, T, S, H, B, N, ROOM, LENGTH, scale,
    G: gl.constexpr, GP: gl.constexpr, D0: gl.constexpr, D1: gl.constexpr, L: gl.constexpr, D: gl.constexpr,
    LS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, QB: gl.constexpr, NB: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """The numbers of the COUNT queries from FIRST on, N tiles of each KV head.

    `tests/sums_twin.py` computes the same in plain Triton.

    Args:
        p_lse: fp32 [B,T,H*G], natural.
        p_sums: fp32 [B,H,ROOM,LENGTH], rows of queries, of which the first BEFORE numbers stay as they are.
        p_hi: how many compressed keys each query reads.
    """
    dtype: gl.constexpr = d_k0.dtype
    TB: gl.constexpr = BM // GP
    PAIR: gl.constexpr = min(GP, 2)
    q0 = gl.allocate_shared_memory(dtype, [QB, GP // PAIR * TB, PAIR, D0], d_q0.layout)
    k0 = gl.allocate_shared_memory(dtype, [NB, BN, D0], d_k0.layout)
    q1, k1 = q0, k0
    if D1 > 0:
        q1 = gl.allocate_shared_memory(dtype, [QB, GP // PAIR * TB, PAIR, D1], d_q1.layout)
        k1 = gl.allocate_shared_memory(dtype, [NB, BN, D1], d_k1.layout)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    lse = gl.allocate_shared_memory(gl.float32, [QB, BM], plain)
    seen = gl.allocate_shared_memory(gl.int32, [QB, TB], plain)
    q_full, q_empty = barriers(QB, 2), barriers(QB, SHARERS)  # full with what TMA brings, and the numbers
    full, empty = barriers(NB, 1), barriers(NB, 1)  # a tile of keys has one reader
    fence_async_shared()
    memory = ((q0, q1), (k0, k1), lse, seen, q_full, q_empty, full, empty)
    where = (p_hi, s_range, FIRST, COUNT, T, H, B, N)
    out, scale = (p_sums + BEFORE, ROOM, LENGTH), scale * LOG2E
    gl.warp_specialize(
        [
            (_copy, ((d_q0, d_q1), (d_k0, d_k1), memory, where, p_lse, S, G, GP, D0, D1)),
            (_score, (memory, where, out, scale, 0, GP, D0, D1, L, D, LS)),
            (_score, (memory, where, out, scale, 1, GP, D0, D1, L, D, LS)),
            (_score, (memory, where, out, scale, 2, GP, D0, D1, L, D, LS)),
        ],
        [4, 4, 4],
        [REGISTERS, REGISTERS, REGISTERS],
    )


# --- launching ---


def launch(
    q: Tensor, k_cmp: Tensor, config: NSAConfig, scale: float, where: KeyRanges, lse: Tensor, sums: Tensor,
    before: int, first: int, count: int,
) -> None:  # fmt: skip
    """The numbers of `count` queries from `first` on, in the rows of sums, fp32 [B,Hkv,room,length], from their
    `before`-th on.

    q [B,T,Hq,Dk] and k_cmp [B,Tc,Hkv,Dk] as `tma.describable` wants them; lse fp32 [B,T,Hq], contiguous.
    """
    tile, (batch, keys, heads, dk), tokens = TILES[q.shape[-1]], k_cmp.shape, q.shape[1]
    group = q.shape[2] // heads
    padded = pad_group(group)
    first_part, second_part = split_dim(dk)
    boxes = query_tiles(q, tile.BM // padded, min(2, padded), make=descriptor)
    n = cdiv(count, tile.BM // padded)
    _sums[(min(n * heads * batch, multiprocessors(q.device)),)](
        *boxes, *key_tiles(k_cmp, tile.BN, make=descriptor), lse, sums, before, where.hi, where.s_query, first,
        count, tokens, keys, heads, batch, n, sums.shape[2], sums.shape[3], scale,
        G=group, GP=padded, D0=first_part, D1=second_part, L=config.l, D=config.d, LS=config.l_sel, BM=tile.BM,
        BN=tile.BN, QB=2, NB=tile.num_stages, REGISTERS=REGISTERS, num_warps=tile.num_warps,
    )  # fmt: skip
