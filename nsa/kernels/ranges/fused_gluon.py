"""The fused gradient of attention to key ranges for sm_90, in Gluon, specialised by warps.

A program holds BN keys and values in shared memory and takes the query tiles that read them in turn. One partition
copies: q, do and the rows' numbers of the next tiles come through a ring of NB slots while the other partition, two
warpgroups of 64 keys each, multiplies. Keys are rows: P^T stays in registers as the left operand of the product that
makes dv, dS^T goes to shared memory for dk and for dq^T = K^T dS, which leaves by a reduce-add of TMA into fp32
memory. While P is computed V dO^T is under way, while dS is that of dv, and from tile to tile those of dk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from nsa.kernels.common.gluon import (
    LOG2E,
    REGISTERS,
    add_tile,
    barriers,
    descriptor,
    load_tile,
    product,
    sign_of,
    store_rows,
)
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, pad_group, split_dim
from nsa.kernels.common.tma import described, key_tiles, query_tiles

if TYPE_CHECKING:
    from nsa.kernels.ranges.fused import Run

# --- which tiles ---


@gluon.jit
def _tiles(p_qlo, p_qhi, i_first, i_begin, i_end, S, BN: gl.constexpr, TB: gl.constexpr, ADD: gl.constexpr):
    """The tiles of TB tokens that read some of BN keys: the first token, how many, and with which to begin."""
    i_last = gl.minimum(i_first + BN, S) - 1
    i_lo = gl.maximum(gl.load(p_qlo + i_first), i_begin) // TB * TB
    i_hi = gl.minimum(gl.load(p_qhi + i_last), i_end)
    n = gl.cdiv(gl.maximum(i_hi - i_lo, 0), TB)
    if not ADD:
        n = gl.maximum(n, 1)
    return i_lo, n, (n - i_lo // TB % gl.maximum(n, 1)) % gl.maximum(n, 1)


# --- the partition that copies ---


@gluon.jit
def _copy(
    d_keys, d_queries, keys, ring, numbers, ready, full, empty, i_key, i_h, i_row, i_tile, n, i_lo, i_stats, n_stats,
    i_head, BM: gl.constexpr, TB: gl.constexpr, DK0: gl.constexpr, DK1: gl.constexpr, DV: gl.constexpr,
):  # fmt: skip
    d_k0, d_k1, d_v = d_keys
    d_q0, d_q1, d_do, d_stats = d_queries
    k0, k1, v = keys
    q0, q1, do = ring
    lse, delta = numbers
    NB: gl.constexpr = do.type.shape[0]
    column = i_h * (DK0 + DK1)
    size: gl.constexpr = DK0 + DK1 + DV
    mbarrier.expect(ready, 2 * v.type.shape[0] * size)
    load_tile(d_k0, [i_key, column], ready, k0)
    if DK1 > 0:
        load_tile(d_k1, [i_key, column + DK0], ready, k1)
    load_tile(d_v, [i_key, i_h * DV], ready, v)
    for j in range(n):
        slot = j % NB
        i_t = i_lo + i_tile * TB
        mbarrier.wait(empty.index(slot), (j // NB & 1) ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, 2 * BM * size + 2 * 4 * BM)
        load_tile(d_q0, [i_row + i_t, i_head, 0], bar, q0.index(slot))
        if DK1 > 0:
            load_tile(d_q1, [i_row + i_t, i_head, DK0], bar, q1.index(slot))
        i_number = i_stats + i_t * (BM // TB)
        load_tile(d_stats, [i_number], bar, lse.index(slot))
        load_tile(d_stats, [n_stats + i_number], bar, delta.index(slot))
        load_tile(d_do, [i_row + i_t, i_head, 0], bar, do.index(slot))
        i_tile = gl.where(i_tile + 1 < n, i_tile + 1, 0)


# --- the partition that computes ---


@gluon.jit
def _add_dq(d_dq, dq, tile, i_row, i_head, i_column: gl.constexpr, BM: gl.constexpr, D: gl.constexpr):
    """Add dq^T [D, BM] to memory through `tile`, which TMA may read until the next `tma.store_wait`."""
    tile.reshape((BM, D)).permute((1, 0)).store(dq)
    fence_async_shared()
    add_tile(d_dq, [i_row, i_head, i_column], tile)


@gluon.jit
def _step(
    j, slot, phase, sums, d_dqs, keys, ring, numbers, spare, full, empty, b_qlo, b_qhi, i_t, i_row, i_head, scale,
    GP: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, DK0: gl.constexpr, DK1: gl.constexpr, DV: gl.constexpr,
):  # fmt: skip
    """The tile of queries from token i_t on, the j-th, in `slot` of the ring.

    It leaves the products of dk under way: the tensor cores have something to do until the next tile's logits, and the
    next step gives the slot back.
    """
    W: gl.constexpr = gl.num_warps()
    NB: gl.constexpr = ring[2].type.shape[0]
    S_L: gl.constexpr = product(BN, BM, W)
    column: gl.constexpr = gl.SliceLayout(0, S_L)
    dk0, dk1, dv = sums
    k0, k1, v = keys
    lse, delta = numbers
    b_ds, b_dq0, b_dq1 = spare
    b_q0 = ring[0].index(slot).reshape((BM, DK0))
    b_do = ring[2].index(slot).reshape((BM, DV))

    mbarrier.wait(full.index(slot), phase)
    b_s = warpgroup_mma(k0, b_q0.permute((1, 0)), gl.zeros([BN, BM], gl.float32, S_L), use_acc=False, is_async=True)
    if DK1 > 0:
        b_q1 = ring[1].index(slot).reshape((BM, DK1))
        b_s = warpgroup_mma(k1, b_q1.permute((1, 0)), b_s, is_async=True)
    b_dp = warpgroup_mma(v, b_do.permute((1, 0)), gl.zeros([BN, BM], gl.float32, S_L), use_acc=False, is_async=True)
    b_lse = lse.index(slot).load(column)
    b_delta = delta.index(slot).load(column)
    o_t = gl.expand_dims(i_t + gl.arange(0, BM, layout=column) // GP, 0)
    seen = (o_t >= gl.expand_dims(b_qlo, 1)) & (o_t < gl.expand_dims(b_qhi, 1))
    b_s = warpgroup_mma_wait(1, [b_s])  # and the products of dk of the step before
    b_p = gl.exp2(b_s * scale - gl.expand_dims(b_lse, 0)) * gl.expand_dims(sign_of(b_delta), 0)  # [BN, BM]
    b_p = gl.where(seen, b_p, 0.0)
    LEFT: gl.constexpr = gl.DotOperandLayout(0, product(BN, DV, W), 2)
    b_left = gl.convert_layout(b_p.to(v.dtype), LEFT, assert_trivial=True)
    dv = warpgroup_mma(b_left, b_do, dv, is_async=True)
    mbarrier.arrive(empty.index((slot + NB - 1) % NB), count=1, pred=j > 0)

    b_dp = warpgroup_mma_wait(1, [b_dp])
    b_ds.store((b_p * (b_dp - gl.expand_dims(b_delta, 0))).to(v.dtype))
    fence_async_shared()
    T0_L: gl.constexpr = product(DK0, BM, W)
    b_x0 = warpgroup_mma(k0.permute((1, 0)), b_ds, gl.zeros([DK0, BM], gl.float32, T0_L), use_acc=False, is_async=True)
    if DK1 > 0:
        T1_L: gl.constexpr = product(DK1, BM, W)
        b_x1 = warpgroup_mma(
            k1.permute((1, 0)), b_ds, gl.zeros([DK1, BM], gl.float32, T1_L), use_acc=False, is_async=True
        )
        dk0 = warpgroup_mma(b_ds, b_q0, dk0, is_async=True)
        dk1 = warpgroup_mma(b_ds, b_q1, dk1, is_async=True)
        dv, b_x0, b_x1, _ = warpgroup_mma_wait(2, [dv, b_x0, b_x1, b_left])
    else:
        dk0 = warpgroup_mma(b_ds, b_q0, dk0, is_async=True)
        dv, b_x0, _ = warpgroup_mma_wait(1, [dv, b_x0, b_left])
    tma.store_wait(0)
    _add_dq(d_dqs[0], b_x0, b_dq0, i_row, i_head, 0, BM, DK0)
    if DK1 > 0:
        _add_dq(d_dqs[1], b_x1, b_dq1, i_row, i_head, DK0, BM, DK1)
        dk0, dk1 = warpgroup_mma_wait(2, [dk0, dk1])  # waits for nothing: the loop may carry them on
    else:
        dk0 = warpgroup_mma_wait(1, [dk0])
    return dk0, dk1, dv


@gluon.jit
def _compute(
    d_dqs, keys, ring, numbers, spare, ready, full, empty, p_qlo, p_qhi, p_dk, p_dv, i_first, i_h, o_batch, H, S, T,
    i_end, i_tile, n, i_lo, i_row, i_head, scale,
    GP: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, DK0: gl.constexpr, DK1: gl.constexpr, DV: gl.constexpr,
    ADD: gl.constexpr,
):  # fmt: skip
    W: gl.constexpr = gl.num_warps()
    NB: gl.constexpr = ring[2].type.shape[0]
    of_key: gl.constexpr = gl.SliceLayout(1, product(BN, BM, W))
    o_s = i_first + gl.arange(0, BN, layout=of_key)  # [BN]
    m_s = o_s < S
    b_qlo = gl.load(p_qlo + o_s, mask=m_s, other=T)
    b_qhi = gl.minimum(gl.load(p_qhi + o_s, mask=m_s, other=0), i_end)
    dk0 = gl.zeros([BN, DK0], gl.float32, product(BN, DK0, W))
    dk1 = 0
    if DK1 > 0:
        dk1 = gl.zeros([BN, DK1], gl.float32, product(BN, DK1, W))
    dv = gl.zeros([BN, DV], gl.float32, product(BN, DV, W))
    gl.assume(n > 0)  # else ptxas sees a way past the loop, on which the sums are no products, and serialises them all
    mbarrier.wait(ready, 0)
    for j in range(n):
        i_t = i_lo + i_tile * (BM // GP)
        dk0, dk1, dv = _step(
            j, j % NB, j // NB & 1, (dk0, dk1, dv), d_dqs, keys, ring, numbers, spare, full, empty, b_qlo, b_qhi, i_t,
            i_row + i_t, i_head, scale * LOG2E, GP, BM, BN, DK0, DK1, DV,
        )  # fmt: skip
        i_tile = gl.where(i_tile + 1 < n, i_tile + 1, 0)
    if DK1 > 0:
        dk0, dk1 = warpgroup_mma_wait(0, [dk0, dk1])
    else:
        dk0 = warpgroup_mma_wait(0, [dk0])
    tma.store_wait(0)
    o_row = (o_batch + o_s) * H + i_h  # [BN]
    store_rows(p_dk, dk0 * scale, o_row * (DK0 + DK1), m_s, 0, DK0, ADD)
    if DK1 > 0:
        store_rows(p_dk, dk1 * scale, o_row * (DK0 + DK1), m_s, DK0, DK1, ADD)
    store_rows(p_dv, dv, o_row * DV, m_s, 0, DV, ADD)


# --- the kernel ---


@launched
@gluon.jit(do_not_specialize=["T", "S", "H", "H0", "NH", "B", "SPLIT", "SPLITS", "s_range", "s_stats"])
def _backward_qkv(
    d_k0, d_k1, d_v, d_q0, d_q1, d_do, d_stats, d_dq0, d_dq1, p_dk, p_dv, p_qlo, p_qhi, s_range, s_stats,
    T, S, H, H0, NH, B, SPLIT, SPLITS, scale,
    G: gl.constexpr, GP: gl.constexpr, DK0: gl.constexpr, DK1: gl.constexpr, DV: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, NB: gl.constexpr, WARPS: gl.constexpr, REGISTERS: gl.constexpr, ADD: gl.constexpr,
):  # fmt: skip
    """One program: BN keys of one of the NH KV heads from H0 on, and one split, SPLIT tokens, of the queries.

    The last split comes first, because its queries read the most compressed keys; the key tiles of a split come one
    after another, so that all of them add to the same rows of dq at the same time. `tests/fused_twin.py` computes the
    same in plain Triton.

    Args:
        d_stats: fp32 [2,B,H,s_stats], see `backward_preprocess`.
        d_dq0, d_dq1: of fp32 [B,T,NH*G,DK]; scale * dq is the gradient. It is added to.
        p_dk, p_dv: [B,S,H,D*]; with ADD fp32, and added to; else every key is written.
        d_k1, d_q1, d_dq1: second parts of head dimensions that have one.
    """
    TB: gl.constexpr = BM // GP
    tiles = gl.cdiv(S, BN)
    i_item = gl.program_id(0)
    i_first = i_item % tiles * BN
    i_local = i_item // tiles % NH
    i_b = i_item // (tiles * NH) % B
    i_begin = (SPLITS - 1 - i_item // (tiles * NH * B)) * SPLIT
    i_end = gl.minimum(i_begin + SPLIT, T)
    i_h = H0 + i_local
    p_qlo += i_b.to(gl.int64) * s_range
    p_qhi += i_b.to(gl.int64) * s_range
    i_lo, n, i_tile = _tiles(p_qlo, p_qhi, i_first, i_begin, i_end, S, BN, TB, ADD)
    if n > 0:
        dtype: gl.constexpr = d_v.dtype
        k0 = gl.allocate_shared_memory(dtype, [BN, DK0], d_k0.layout)
        v = gl.allocate_shared_memory(dtype, [BN, DV], d_v.layout)
        q0 = gl.allocate_shared_memory(dtype, [NB, TB, GP, DK0], d_q0.layout)
        do = gl.allocate_shared_memory(dtype, [NB, TB, GP, DV], d_do.layout)
        dq0 = gl.allocate_shared_memory(gl.float32, [TB, GP, DK0], d_dq0.layout)
        k1, q1, dq1 = k0, q0, dq0
        if DK1 > 0:
            k1 = gl.allocate_shared_memory(dtype, [BN, DK1], d_k1.layout)
            q1 = gl.allocate_shared_memory(dtype, [NB, TB, GP, DK1], d_q1.layout)
            dq1 = gl.allocate_shared_memory(gl.float32, [TB, GP, DK1], d_dq1.layout)
        lse = gl.allocate_shared_memory(gl.float32, [NB, BM], d_stats.layout)
        delta = gl.allocate_shared_memory(gl.float32, [NB, BM], d_stats.layout)
        ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, BM], dtype)
        ds = gl.allocate_shared_memory(dtype, [BN, BM], ds_layout)
        ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(ready, count=1)
        full, empty = barriers(NB, 1), barriers(NB, 1)
        fence_async_shared()
        keys, ring, numbers, spare = (k0, k1, v), (q0, q1, do), (lse, delta), (ds, dq0, dq1)
        gl.warp_specialize(
            [
                (
                    _copy,
                    (
                        (d_k0, d_k1, d_v), (d_q0, d_q1, d_do, d_stats), keys, ring, numbers, ready, full, empty,
                        i_b * S + i_first, i_h, i_b * T, i_tile, n, i_lo, (i_b * H + i_h) * s_stats, B * H * s_stats,
                        i_h * G, BM, TB, DK0, DK1, DV,
                    ),
                ),
                (
                    _compute,
                    (
                        (d_dq0, d_dq1), keys, ring, numbers, spare, ready, full, empty, p_qlo, p_qhi, p_dk, p_dv,
                        i_first, i_h, i_b.to(gl.int64) * S, H, S, T, i_end, i_tile, n, i_lo, i_b * T,
                        i_local * G, scale, GP, BM, BN, DK0, DK1, DV, ADD,
                    ),
                ),
            ],
            [WARPS],
            [REGISTERS],
        )  # fmt: skip


# --- launching ---


def launch(run: Run, q: Tensor, do: Tensor, dq: Tensor, scale: float, first_head: int, run_heads: int) -> None:
    """One launch for `run_heads` KV heads from `first_head` on; tensors as `tma.describable` wants them.

    q [B,T,Hq,Dk], do [B,T,Hq,Dv]; dq, fp32 [B,T,run_heads * G,Dk], is added to.
    """
    branch, where, tile, (batch, keys, heads, dk) = run.branch, run.branch.where, run.tile, run.branch.k.shape
    tokens, group, dv = q.shape[1], q.shape[2] // heads, branch.v.shape[-1]
    padded = pad_group(group)
    first, second = split_dim(dk)
    box, how = (tile.BM // padded, padded), {"make": descriptor}
    (k0, k1), (v, _) = key_tiles(branch.k, tile.BN, **how), key_tiles(branch.v, tile.BN, **how)
    (q0, q1), (do0, _), (dq0, dq1) = (query_tiles(x, *box, **how) for x in (q, do, dq))
    numbers = described(descriptor, branch.stats, (branch.stats.numel(),), (1,), (tile.BM,))
    _backward_qkv[(cdiv(keys, tile.BN) * run_heads * batch * run.splits,)](
        k0, k1, v, q0, q1, do0, numbers, dq0, dq1, run.dk, run.dv, where.q_lo, where.q_hi, where.s_key,
        branch.stats.stride(2), tokens, keys, heads, first_head, run_heads, batch, run.split, run.splits, scale,
        G=group, GP=padded, DK0=first, DK1=second, DV=dv, BM=tile.BM, BN=tile.BN, NB=tile.num_stages,
        WARPS=tile.num_warps, REGISTERS=REGISTERS, ADD=run.adds, num_warps=4,
    )  # fmt: skip
