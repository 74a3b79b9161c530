"""The gradient of selected attention for sm_90 in one kernel, in Gluon, specialised by warps.

A program holds BN keys and values of a block in shared memory and takes the queries of a segment in tiles of BM rows.
One partition gathers: the rows of q and do of each query, a box of TMA or, of fewer rows than a box takes, 16 bytes a
copy, and the rows' numbers come through a ring of NB slots. The second, a warpgroup, makes P^T and dS^T of each tile,
leaves both in shared memory, and sums dk. The third sums dv and makes dq^T = K^T dS, which leaves by a reduce-add of
TMA, query by query. So no warpgroup holds more than one of the two sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from nsa.kernels.common.backward_preprocess import NOTHING as NO_ROW
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
from nsa.kernels.common.tma import described, key_tiles
from nsa.kernels.selected.fused import BOX as FEWEST

if TYPE_CHECKING:
    from nsa.kernels.selected.fused import Run

NOTHING = gl.constexpr(NO_ROW.value)

BOX = gl.constexpr(FEWEST)

NARROW = gl.constexpr(32)
"""Columns of a box of fp32 that is to hold the fewer rows of a query."""

FEWER_REGISTERS = REGISTERS - 8
"""Of a thread that computes, where those that gather copy by themselves."""

MADE = gl.constexpr(2)
"""Tiles of P^T and dS^T that are held."""


@gluon.jit
def _queries(p_list, i_pair, n_pairs, H: gl.constexpr, SLOTS: gl.constexpr):
    """The queries of pairs of a segment, after its end that of the last; pair numbers have 31 bits."""
    return gl.load(p_list + gl.minimum(i_pair, n_pairs - 1)).to(gl.int32) // (H * SLOTS)


# --- the partition that gathers ---


@gluon.jit
def _copy_rows(
    p_x, tile, p_list, i_pair, i_h, n_pairs, H: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, SLOTS: gl.constexpr,
):  # fmt: skip
    """Begin to copy the rows of the queries of the pairs from i_pair on to `tile` [BM,D], 16 bytes a copy."""
    BM: gl.constexpr = tile.type.shape[0]
    D: gl.constexpr = tile.type.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [gl.num_warps(), 1], [1, 0])
    o_r = gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    b_n = _queries(p_list, i_pair + o_r // GP, n_pairs, H, SLOTS)
    o_row = b_n.to(gl.int64) * (H * G) + i_h * G + gl.minimum(o_r % GP, G - 1)
    o_column = gl.arange(0, D, layout=gl.SliceLayout(0, layout))
    async_copy.async_copy_global_to_shared(tile, p_x + gl.expand_dims(o_row * D, 1) + gl.expand_dims(o_column, 0))


@gluon.jit
def _gather(
    d_keys, d_queries, keys, ring, numbers, bars, p_list, p_stats, p_limit, i_key, i_h, n_pairs, n,
    H: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, SLOTS: gl.constexpr, DK1: gl.constexpr,
):  # fmt: skip
    d_k0, d_k1, d_v = d_keys
    d_q0, d_q1, d_do = d_queries  # pointers where a query has fewer rows than BOX
    k0, k1, v = keys
    q0, q1, do = ring
    lse, delta, limit = numbers
    ready, full, empty, _, _ = bars
    NB: gl.constexpr = q0.type.shape[0]
    BM: gl.constexpr = q0.type.shape[1]
    DK0: gl.constexpr = q0.type.shape[2]
    DV: gl.constexpr = do.type.shape[2]
    TB: gl.constexpr = BM // GP
    size: gl.constexpr = DK0 + DK1 + DV
    mbarrier.expect(ready, 2 * v.type.shape[0] * size)
    load_tile(d_k0, [i_key, i_h * (DK0 + DK1)], ready, k0)
    if DK1 > 0:
        load_tile(d_k1, [i_key, i_h * (DK0 + DK1) + DK0], ready, k1)
    load_tile(d_v, [i_key, i_h * DV], ready, v)
    o_r = gl.arange(0, BM, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    o_head = i_h * G + o_r % GP
    b_n = _queries(p_list, o_r // GP, n_pairs, H, SLOTS)  # [BM], read one tile ahead of its use
    for j in range(n):
        slot = j % NB
        m_row = (j * TB + o_r // GP < n_pairs) & (o_r % GP < G)
        b_stats = gl.load(p_stats + b_n.to(gl.int64) * (H * G) + o_head, mask=m_row, other=NOTHING)
        b_limit = gl.load(p_limit + b_n)
        b_n = _queries(p_list, (j + 1) * TB + o_r // GP, n_pairs, H, SLOTS)
        mbarrier.wait(empty.index(slot), (j // NB & 1) ^ 1)
        bar = full.index(slot)
        if GP < BOX:
            _copy_rows(d_q0, q0.index(slot), p_list, j * TB, i_h, n_pairs, H, G, GP, SLOTS)
            _copy_rows(d_do, do.index(slot), p_list, j * TB, i_h, n_pairs, H, G, GP, SLOTS)
            async_copy.mbarrier_arrive(bar)  # once more for each thread, when its copies are there
        else:
            mbarrier.expect(bar, 2 * BM * size)
            for i in gl.static_range(TB):
                i_row = _queries(p_list, j * TB + i, n_pairs, H, SLOTS) * (H * G) + i_h * G
                load_tile(d_q0, [i_row, 0], bar, q0.index(slot).slice(i * GP, GP))
                if DK1 > 0:
                    load_tile(d_q1, [i_row, DK0], bar, q1.index(slot).slice(i * GP, GP))
                load_tile(d_do, [i_row, 0], bar, do.index(slot).slice(i * GP, GP))
        lse.index(slot).store((b_stats >> 32).to(gl.int32).to(gl.float32, bitcast=True))
        delta.index(slot).store(b_stats.to(gl.int32).to(gl.float32, bitcast=True))
        limit.index(slot).store(b_limit)
        mbarrier.arrive(bar, count=1)


# --- the partition that makes P and dS, and sums dk ---


@gluon.jit
def _sum_dk(
    keys, ring, numbers, pair, bars, p_dk, i_key, i_end, i_h, n, scale,
    H: gl.constexpr, GP: gl.constexpr, DK1: gl.constexpr,
):  # fmt: skip
    W: gl.constexpr = gl.num_warps()
    k0, k1, v = keys
    q0, q1, do = ring
    lse, delta, limit = numbers
    p, ds = pair
    ready, full, empty, made, taken = bars
    NB: gl.constexpr = q0.type.shape[0]
    BM: gl.constexpr = q0.type.shape[1]
    BN: gl.constexpr = k0.type.shape[0]
    DK0: gl.constexpr = k0.type.shape[1]
    S_L: gl.constexpr = product(BN, BM, W)
    column: gl.constexpr = gl.SliceLayout(0, S_L)
    o_key = i_key + gl.arange(0, BN, layout=gl.SliceLayout(1, S_L))
    dk0 = gl.zeros([BN, DK0], gl.float32, product(BN, DK0, W))
    dk1 = 0
    if DK1 > 0:
        dk1 = gl.zeros([BN, DK1], gl.float32, product(BN, DK1, W))
    gl.assume(n > 0)  # as in `ranges.fused_gluon`
    mbarrier.wait(ready, 0)
    for j in range(n):
        slot = j % NB
        b_q0, b_do = q0.index(slot), do.index(slot)
        mbarrier.wait(full.index(slot), j // NB & 1)
        if GP < BOX:
            fence_async_shared()  # products read what threads have copied
        b_s = warpgroup_mma(k0, b_q0.permute((1, 0)), gl.zeros([BN, BM], gl.float32, S_L), use_acc=False, is_async=True)
        if DK1 > 0:
            b_s = warpgroup_mma(k1, q1.index(slot).permute((1, 0)), b_s, is_async=True)
        b_dp = warpgroup_mma(v, b_do.permute((1, 0)), gl.zeros([BN, BM], gl.float32, S_L), use_acc=False, is_async=True)
        b_lse = lse.index(slot).load(column)
        b_delta = delta.index(slot).load(column)
        b_limit = gl.minimum(limit.index(slot).load(column), i_end - 1)
        seen = gl.expand_dims(o_key, 1) <= gl.expand_dims(b_limit, 0)
        b_s = warpgroup_mma_wait(1, [b_s])  # and the products of dk of the step before
        mbarrier.arrive(empty.index((slot + NB - 1) % NB), count=1, pred=j > 0)
        b_p = gl.exp2(b_s * (scale * LOG2E) - gl.expand_dims(b_lse, 0))  # [BN, BM]
        b_p = gl.where(seen, b_p * gl.expand_dims(sign_of(b_delta), 0), 0.0)
        mbarrier.wait(taken.index(j % MADE), (j // MADE & 1) ^ 1)
        p.index(j % MADE).store(b_p.to(v.dtype))
        b_dp = warpgroup_mma_wait(0, [b_dp])
        b_ds = ds.index(j % MADE)
        b_ds.store((b_p * (b_dp - gl.expand_dims(b_delta, 0))).to(v.dtype))
        fence_async_shared()
        mbarrier.arrive(made.index(j % MADE), count=1)
        dk0 = warpgroup_mma(b_ds, b_q0, dk0, is_async=True)
        if DK1 > 0:
            dk1 = warpgroup_mma(b_ds, q1.index(slot), dk1, is_async=True)
            dk0, dk1 = warpgroup_mma_wait(2, [dk0, dk1])  # waits for nothing: the loop may carry them on
        else:
            dk0 = warpgroup_mma_wait(1, [dk0])
    o_row = o_key.to(gl.int64) * H + i_h
    if DK1 > 0:
        dk0, dk1 = warpgroup_mma_wait(0, [dk0, dk1])
        store_rows(p_dk, dk1 * scale, o_row * (DK0 + DK1), o_key < i_end, DK0, DK1, True)
    else:
        dk0 = warpgroup_mma_wait(0, [dk0])
    store_rows(p_dk, dk0 * scale, o_row * (DK0 + DK1), o_key < i_end, 0, DK0, True)


# --- the partition that sums dv and makes dq ---


@gluon.jit
def _sum_dv(
    d_dqs, keys, ring, pair, spare, bars, p_list, p_dv, i_key, i_end, i_h, i_local, n_pairs, n,
    H: gl.constexpr, NG: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, SLOTS: gl.constexpr, DK1: gl.constexpr,
):  # fmt: skip
    W: gl.constexpr = gl.num_warps()
    k0, k1, v = keys
    _, _, do = ring
    p, ds = pair
    b_dq0, b_dq1 = spare
    d_dq0, d_dq1 = d_dqs
    ready, full, empty, made, taken = bars
    NB: gl.constexpr = do.type.shape[0]
    BM: gl.constexpr = do.type.shape[1]
    BN: gl.constexpr = v.type.shape[0]
    DK0: gl.constexpr = k0.type.shape[1]
    DV: gl.constexpr = v.type.shape[1]
    BOX_ROWS: gl.constexpr = d_dq0.block_type.shape[0]
    BOX_COLUMNS: gl.constexpr = d_dq0.block_type.shape[1]
    dv = gl.zeros([BN, DV], gl.float32, product(BN, DV, W))
    gl.assume(n > 0)
    mbarrier.wait(ready, 0)
    for j in range(n):
        slot = j % NB
        mbarrier.wait(full.index(slot), j // NB & 1)
        mbarrier.wait(made.index(j % MADE), j // MADE & 1)
        if GP < BOX:
            fence_async_shared()
        b_ds = ds.index(j % MADE)
        dv = warpgroup_mma(p.index(j % MADE), do.index(slot), dv, is_async=True)
        X0: gl.constexpr = product(DK0, BM, W)
        b_x0 = warpgroup_mma(
            k0.permute((1, 0)), b_ds, gl.zeros([DK0, BM], gl.float32, X0), use_acc=False, is_async=True
        )
        if DK1 > 0:
            X1: gl.constexpr = product(DK1, BM, W)
            b_x1 = warpgroup_mma(
                k1.permute((1, 0)), b_ds, gl.zeros([DK1, BM], gl.float32, X1), use_acc=False, is_async=True
            )
            dv, b_x0, b_x1 = warpgroup_mma_wait(0, [dv, b_x0, b_x1])
        else:
            dv, b_x0 = warpgroup_mma_wait(0, [dv, b_x0])
        mbarrier.arrive(empty.index(slot), count=1)
        mbarrier.arrive(taken.index(j % MADE), count=1)
        tma.store_wait(0)
        b_dq0.store(b_x0.permute((1, 0)).reshape([BM * DK0 // BOX_COLUMNS, BOX_COLUMNS]))
        if DK1 > 0:
            b_dq1.store(b_x1.permute((1, 0)))
        fence_async_shared()
        for i in gl.static_range(BM // GP):
            i_row = _queries(p_list, j * (BM // GP) + i, n_pairs, H, SLOTS) * NG + i_local * G
            # zeros to the rows of others that follow
            if DK1 > 0:
                add_tile(d_dq0, [i_row, 0], b_dq0.slice(i * GP, GP))
                add_tile(d_dq1, [i_row, DK0], b_dq1.slice(i * GP, GP))
            else:
                add_tile(d_dq0, [i_row * (DK0 // BOX_COLUMNS), 0], b_dq0.slice(i * BOX_ROWS, BOX_ROWS))
    tma.store_wait(0)
    o_key = i_key + gl.arange(0, BN, layout=gl.SliceLayout(1, dv.type.layout))
    store_rows(p_dv, dv, (o_key.to(gl.int64) * H + i_h) * DV, o_key < i_end, 0, DV, True)


# --- the kernel ---


@launched
@gluon.jit(do_not_specialize=["BINS", "M", "K", "H0", "NH"])
def _backward_selected(
    d_k0, d_k1, d_v, d_q0, d_q1, d_do, d_dq0, d_dq1, p_dk, p_dv, p_order, p_edges, p_segment_edges, p_segment_key,
    p_blocks, p_stats, p_limit, BINS, M, K, H0, NH, scale,
    H: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, NG: gl.constexpr, DK0: gl.constexpr, DK1: gl.constexpr,
    DV: gl.constexpr, LB: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, NB: gl.constexpr, SLOTS: gl.constexpr,
    PAIRS: gl.constexpr, WARPS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """One program: a segment of one of the NH KV heads from H0 on, and BN keys of its block of LB.

    `tests/fused_twin.py` computes the same in plain Triton.

    Args:
        d_q0, d_do: of the rows [N*H*G,D*], GP of them: those of a query, and others that follow. Where these are fewer
            than BOX, pointers.
        d_dq0: of fp32 [N*NG,DK], likewise, or, where they are fewer, of its NARROW columns after one another; scale *
            dq is the gradient. It is added to.
        d_k1, d_q1, d_dq1: second parts of head dimensions that have one.
        p_dk, p_dv: fp32 [M,H,D*], added to.
        p_order, p_edges, p_segment_edges, p_segment_key: `Segments`, with K keys for each KV head.
        p_blocks: first keys and, BINS further, the ends of their sequences.
        p_stats: int64 [N,H*G], see `backward_preprocess`.
        p_limit: the last key that each of the N queries may read.
    """
    i_segment = gl.load(p_segment_edges + H0 * K) + gl.program_id(0)
    if i_segment < gl.load(p_segment_edges + (H0 + NH) * K):
        i_bin = gl.load(p_segment_key + i_segment)
        begin = gl.load(p_edges + i_bin) + (i_segment - gl.load(p_segment_edges + i_bin)) * PAIRS
        n_pairs = gl.minimum(PAIRS, gl.load(p_edges + i_bin + 1) - begin)
        p_list = p_order + begin
        i_h = i_bin // K
        i_first = gl.load(p_blocks + i_bin % BINS)
        i_end = gl.minimum(i_first + LB, M)
        i_key = i_first + gl.program_id(1) * BN
        n = gl.cdiv(n_pairs, BM // GP)

        dtype: gl.constexpr = d_v.dtype
        k0 = gl.allocate_shared_memory(dtype, [BN, DK0], d_k0.layout)
        v = gl.allocate_shared_memory(dtype, [BN, DV], d_v.layout)
        q0 = gl.allocate_shared_memory(dtype, [NB, BM, DK0], gl.NVMMASharedLayout.get_default_for([BM, DK0], dtype))
        do = gl.allocate_shared_memory(dtype, [NB, BM, DV], gl.NVMMASharedLayout.get_default_for([BM, DV], dtype))
        columns: gl.constexpr = d_dq0.block_type.shape[1]
        dq0 = gl.allocate_shared_memory(gl.float32, [BM * DK0 // columns, columns], d_dq0.layout)
        k1, q1, dq1 = k0, q0, dq0
        if DK1 > 0:
            k1 = gl.allocate_shared_memory(dtype, [BN, DK1], d_k1.layout)
            q1 = gl.allocate_shared_memory(dtype, [NB, BM, DK1], d_q1.layout)
            dq1 = gl.allocate_shared_memory(gl.float32, [BM, DK1], d_dq1.layout)
        plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        lse = gl.allocate_shared_memory(gl.float32, [NB, BM], plain)
        delta = gl.allocate_shared_memory(gl.float32, [NB, BM], plain)
        limit = gl.allocate_shared_memory(gl.int32, [NB, BM], plain)
        tile: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, BM], dtype)
        p = gl.allocate_shared_memory(dtype, [MADE, BN, BM], tile)
        ds = gl.allocate_shared_memory(dtype, [MADE, BN, BM], tile)
        ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(ready, count=1)
        full, empty = barriers(NB, 1 if GP < BOX else 2), barriers(NB, 2)  # full with what TMA brings, and the numbers
        made, taken = barriers(MADE, 1), barriers(MADE, 1)
        fence_async_shared()
        keys, ring, numbers, pair = (k0, k1, v), (q0, q1, do), (lse, delta, limit), (p, ds)
        bars = (ready, full, empty, made, taken)
        gl.warp_specialize(
            [
                (
                    _gather,
                    (
                        (d_k0, d_k1, d_v), (d_q0, d_q1, d_do), keys, ring, numbers, bars, p_list, p_stats, p_limit,
                        i_key, i_h, n_pairs, n, H, G, GP, SLOTS, DK1,
                    ),
                ),
                (_sum_dk, (keys, ring, numbers, pair, bars, p_dk, i_key, i_end, i_h, n, scale, H, GP, DK1)),
                (
                    _sum_dv,
                    (
                        (d_dq0, d_dq1), keys, ring, pair, (dq0, dq1), bars, p_list, p_dv, i_key, i_end, i_h, i_h - H0,
                        n_pairs, n, H, NG, G, GP, SLOTS, DK1,
                    ),
                ),
            ],
            [WARPS // 2, WARPS // 2],
            [REGISTERS, REGISTERS],
        )  # fmt: skip


# --- launching ---


def _rows(x: Tensor, box: int) -> tuple[Any, Any]:
    """So many rows of contiguous x [B,T,H,D], in the two parts of D."""
    rows, size = x.shape[:3].numel(), x.shape[-1]
    first, second = split_dim(size)

    def part(width: int) -> Any:
        return described(descriptor, x, (rows, size), (size, 1), (box, width)) if width else None

    return part(first), part(second)


def _narrow_rows(x: Tensor, box: int) -> tuple[Any, Any]:
    """The same as an array of NARROW columns, and nothing."""
    parts = x.shape[-1] // NARROW.value
    shape = x.shape[:3].numel() * parts, NARROW.value
    return described(descriptor, x, shape, (NARROW.value, 1), (box * parts, NARROW.value)), None


def launch(run: Run, q: Tensor, do: Tensor, dq: Tensor, scale: float, first_head: int, run_heads: int) -> None:
    """One launch for `run_heads` KV heads from `first_head` on; all tensors contiguous, k and v as TMA takes them.

    q [B,T,Hq,Dk], do [B,T,Hq,Dv]; dq, fp32 [B,T,run_heads * G,Dk], is added to.
    """
    branch, where, tile, (*_, heads, dk) = run.branch, run.branch.where, run.tile, run.branch.k.shape
    group, dv = q.shape[2] // heads, branch.v.shape[-1]
    padded = pad_group(group)
    k0, k1 = key_tiles(branch.k, tile.BN, make=descriptor)
    v0, _ = key_tiles(branch.v, tile.BN, make=descriptor)
    boxed = padded >= BOX.value
    rows = (*_rows(q, padded), _rows(do, padded)[0]) if boxed else (q, None, do)
    first, second = split_dim(dk)
    _backward_selected[(run.at_most(run_heads), cdiv(where.l_sel, tile.BN))](
        k0, k1, v0, *rows, *(_rows if boxed else _narrow_rows)(dq, padded), run.dk, run.dv, *run.segments.arrays,
        where.blocks, branch.stats, where.queries[2], where.bins, where.keys, run.keys, first_head, run_heads, scale,
        H=heads, G=group, GP=padded, NG=dq.shape[2], DK0=first, DK1=second, DV=dv, LB=where.l_sel, BM=tile.BM,
        BN=tile.BN, NB=tile.num_stages, SLOTS=branch.indices.shape[-1], PAIRS=run.segments.pairs, WARPS=tile.num_warps,
        REGISTERS=REGISTERS if boxed else FEWER_REGISTERS, num_warps=4,
    )  # fmt: skip
