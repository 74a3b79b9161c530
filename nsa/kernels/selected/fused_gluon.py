"""The gradient of selected attention for sm_90 in one kernel, in Gluon, specialised by warps.

A program holds BN keys and values of a block in shared memory and takes the queries of a segment in tiles of BM rows.
One partition gathers: the rows of q and do of each query, a box of TMA or, of fewer rows than a box takes, 16 bytes a
copy, and the rows' numbers come through a ring of NB slots. Two more, a warpgroup each, multiply every other tile as
`ranges.fused_gluon` does: P^T stays in registers as the left operand for dv, dS^T goes to shared memory for dk and for
dq^T = K^T dS, which leaves by a reduce-add of TMA, query by query. At last each gives the other half of its sums: one
has dk, the other dv.
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
from nsa.kernels.common.sizes import cdiv, pad_group
from nsa.kernels.common.tma import described, key_tiles

if TYPE_CHECKING:
    from nsa.kernels.selected.fused import Run

NOTHING = gl.constexpr(NO_ROW.value)

BOX = gl.constexpr(8)
"""Rows that a box of TMA takes at least, in the layout that products read."""

NARROW = gl.constexpr(32)
"""Columns of a box of fp32 that is to hold the fewer rows of a query."""

FEWER_REGISTERS = REGISTERS - 8
"""Of a thread that computes, where those that gather copy by themselves."""


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
    d_keys, d_queries, keys, ring, numbers, ready, full, empty, p_list, p_stats, p_limit, i_key, i_h, n_pairs, n,
    H: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, SLOTS: gl.constexpr,
):  # fmt: skip
    d_k, d_v = d_keys
    d_q, d_do = d_queries  # pointers where a query has fewer rows than BOX
    k, v = keys
    q, do = ring
    lse, delta, limit = numbers
    NB: gl.constexpr = q.type.shape[0]
    BM: gl.constexpr = q.type.shape[1]
    DK: gl.constexpr = q.type.shape[2]
    DV: gl.constexpr = do.type.shape[2]
    TB: gl.constexpr = BM // GP
    mbarrier.expect(ready, 2 * k.type.shape[0] * (DK + DV))
    load_tile(d_k, [i_key, i_h * DK], ready, k)
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
            _copy_rows(d_q, q.index(slot), p_list, j * TB, i_h, n_pairs, H, G, GP, SLOTS)
            _copy_rows(d_do, do.index(slot), p_list, j * TB, i_h, n_pairs, H, G, GP, SLOTS)
            async_copy.mbarrier_arrive(bar)  # once more for each thread, when its copies are there
        else:
            mbarrier.expect(bar, 2 * BM * (DK + DV))
            for i in gl.static_range(TB):
                i_row = _queries(p_list, j * TB + i, n_pairs, H, SLOTS) * (H * G) + i_h * G
                load_tile(d_q, [i_row, 0], bar, q.index(slot).slice(i * GP, GP))
                load_tile(d_do, [i_row, 0], bar, do.index(slot).slice(i * GP, GP))
        lse.index(slot).store((b_stats >> 32).to(gl.int32).to(gl.float32, bitcast=True))
        delta.index(slot).store(b_stats.to(gl.int32).to(gl.float32, bitcast=True))
        limit.index(slot).store(b_limit)
        mbarrier.arrive(bar, count=1)


# --- the partitions that compute ---


@gluon.jit
def _step(
    j, sums, d_dq, keys, ring, numbers, spare, full, empty, p_list, i_key, i_end, i_local, n_pairs, scale,
    H: gl.constexpr, NG: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, SLOTS: gl.constexpr,
):  # fmt: skip
    """The j-th tile of queries. It leaves the products of dk under way, as that of `ranges.fused_gluon` does."""
    W: gl.constexpr = gl.num_warps()
    k, v = keys
    NB: gl.constexpr = ring[0].type.shape[0]
    BM: gl.constexpr = ring[0].type.shape[1]
    BN: gl.constexpr = k.type.shape[0]
    DK: gl.constexpr = k.type.shape[1]
    DV: gl.constexpr = v.type.shape[1]
    S_L: gl.constexpr = product(BN, BM, W)
    column: gl.constexpr = gl.SliceLayout(0, S_L)
    lse, delta, limit = numbers
    b_ds, b_dq = spare
    dk, dv = sums
    slot = j % NB
    b_q, b_do = ring[0].index(slot), ring[1].index(slot)

    mbarrier.wait(full.index(slot), j // NB & 1)
    if GP < BOX:
        fence_async_shared()  # products read what threads have copied
    b_s = warpgroup_mma(k, b_q.permute((1, 0)), gl.zeros([BN, BM], gl.float32, S_L), use_acc=False, is_async=True)
    b_dp = warpgroup_mma(v, b_do.permute((1, 0)), gl.zeros([BN, BM], gl.float32, S_L), use_acc=False, is_async=True)
    b_lse = lse.index(slot).load(column)
    b_delta = delta.index(slot).load(column)
    b_limit = gl.minimum(limit.index(slot).load(column), i_end - 1)
    o_key = i_key + gl.arange(0, BN, layout=gl.SliceLayout(1, S_L))
    seen = gl.expand_dims(o_key, 1) <= gl.expand_dims(b_limit, 0)
    b_s = warpgroup_mma_wait(1, [b_s])  # and the products of dk of the step before
    b_p = gl.exp2(b_s * scale - gl.expand_dims(b_lse, 0)) * gl.expand_dims(sign_of(b_delta), 0)  # [BN, BM]
    b_p = gl.where(seen, b_p, 0.0)
    LEFT: gl.constexpr = gl.DotOperandLayout(0, product(BN, DV, W), 2)
    b_left = gl.convert_layout(b_p.to(v.dtype), LEFT, assert_trivial=True)
    dv = warpgroup_mma(b_left, b_do, dv, is_async=True)
    mbarrier.arrive(empty.index((slot + NB - 2) % NB), count=1, pred=j > 1)

    b_dp = warpgroup_mma_wait(1, [b_dp])
    b_ds.store((b_p * (b_dp - gl.expand_dims(b_delta, 0))).to(v.dtype))
    fence_async_shared()
    T_L: gl.constexpr = product(DK, BM, W)
    b_x = warpgroup_mma(k.permute((1, 0)), b_ds, gl.zeros([DK, BM], gl.float32, T_L), use_acc=False, is_async=True)
    dk = warpgroup_mma(b_ds, b_q, dk, is_async=True)
    dv, b_x, _ = warpgroup_mma_wait(1, [dv, b_x, b_left])
    tma.store_wait(0)
    BOX_ROWS: gl.constexpr = d_dq.block_type.shape[0]
    BOX_COLUMNS: gl.constexpr = d_dq.block_type.shape[1]
    b_dq.store(b_x.permute((1, 0)).reshape([BM * DK // BOX_COLUMNS, BOX_COLUMNS]))
    fence_async_shared()
    for i in gl.static_range(BM // GP):
        i_row = _queries(p_list, j * (BM // GP) + i, n_pairs, H, SLOTS) * NG + i_local * G
        # zeros to the rows of others that follow
        add_tile(d_dq, [i_row * (DK // BOX_COLUMNS), 0], b_dq.slice(i * BOX_ROWS, BOX_ROWS))
    dk = warpgroup_mma_wait(1, [dk])  # waits for nothing: the loop may carry it on
    return dk, dv


@gluon.jit
def _compute(
    d_dq, keys, ring, numbers, spare, halves, ready, full, empty, done, p_list, p_dk, p_dv, i_key, i_end, i_h, i_local,
    n_pairs, n, scale,
    WHICH: gl.constexpr, H: gl.constexpr, NG: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, SLOTS: gl.constexpr,
):  # fmt: skip
    """Every other tile, from the WHICH-th on, 2 * n in all."""
    W: gl.constexpr = gl.num_warps()
    BN: gl.constexpr = keys[0].type.shape[0]
    DK: gl.constexpr = keys[0].type.shape[1]
    DV: gl.constexpr = keys[1].type.shape[1]
    dk = gl.zeros([BN, DK], gl.float32, product(BN, DK, W))
    dv = gl.zeros([BN, DV], gl.float32, product(BN, DV, W))
    gl.assume(n > 0)  # as in `ranges.fused_gluon`
    mbarrier.wait(ready, 0)
    for j in range(n):
        dk, dv = _step(
            2 * j + WHICH, (dk, dv), d_dq, keys, ring, numbers, spare, full, empty, p_list, i_key, i_end, i_local,
            n_pairs, scale * LOG2E, H, NG, G, GP, SLOTS,
        )  # fmt: skip
    dk = warpgroup_mma_wait(0, [dk])
    tma.store_wait(0)
    o_key = i_key + gl.arange(0, BN, layout=gl.SliceLayout(1, dk.type.layout))
    o_row = o_key.to(gl.int64) * H + i_h
    if WHICH == 0:
        halves[1].store(dv)
        mbarrier.arrive(done.index(1), count=1)
        mbarrier.wait(done.index(0), 0)
        dk += halves[0].load(dk.type.layout)
        store_rows(p_dk, dk * scale, o_row * DK, o_key < i_end, 0, DK, True)
    else:
        halves[0].store(dk)
        mbarrier.arrive(done.index(0), count=1)
        mbarrier.wait(done.index(1), 0)
        dv += halves[1].load(dv.type.layout)
        store_rows(p_dv, dv, o_row * DV, o_key < i_end, 0, DV, True)


# --- the kernel ---


@launched
@gluon.jit(do_not_specialize=["BINS", "M", "K", "H0", "NH"])
def _backward_selected(
    d_k, d_v, d_q, d_do, d_dq, p_dk, p_dv, p_order, p_edges, p_segment_edges, p_segment_key, p_blocks, p_stats,
    p_limit, BINS, M, K, H0, NH, scale,
    H: gl.constexpr, G: gl.constexpr, GP: gl.constexpr, NG: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr,
    LB: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, NB: gl.constexpr, SLOTS: gl.constexpr, PAIRS: gl.constexpr,
    WARPS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """One program: a segment of one of the NH KV heads from H0 on, and BN keys of its block of LB.

    `tests/fused_twin.py` computes the same in plain Triton.

    Args:
        d_q, d_do: of the rows [N*H*G,D*], GP of them: those of a query, and others that follow. Where these are fewer
            than BOX, pointers.
        d_dq: of fp32 [N*NG,DK], likewise, or, where they are fewer, of its NARROW columns after one another; scale *
            dq is the gradient. It is added to.
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
        n = gl.cdiv(n_pairs, 2 * (BM // GP))  # of each of the two, of which the second may find nothing in its last

        dtype: gl.constexpr = d_v.dtype
        k = gl.allocate_shared_memory(dtype, [BN, DK], d_k.layout)
        v = gl.allocate_shared_memory(dtype, [BN, DV], d_v.layout)
        q = gl.allocate_shared_memory(dtype, [NB, BM, DK], gl.NVMMASharedLayout.get_default_for([BM, DK], dtype))
        do = gl.allocate_shared_memory(dtype, [NB, BM, DV], gl.NVMMASharedLayout.get_default_for([BM, DV], dtype))
        plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        lse = gl.allocate_shared_memory(gl.float32, [NB, BM], plain)
        delta = gl.allocate_shared_memory(gl.float32, [NB, BM], plain)
        limit = gl.allocate_shared_memory(gl.int32, [NB, BM], plain)
        ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, BM], dtype)
        ds = gl.allocate_shared_memory(dtype, [2, BN, BM], ds_layout)
        columns: gl.constexpr = d_dq.block_type.shape[1]
        dq = gl.allocate_shared_memory(gl.float32, [2, BM * DK // columns, columns], d_dq.layout)
        dk_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, DK], gl.float32)
        dv_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, DV], gl.float32)
        half_dk = gl.allocate_shared_memory(gl.float32, [BN, DK], dk_layout)
        half_dv = gl.allocate_shared_memory(gl.float32, [BN, DV], dv_layout)
        ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(ready, count=1)
        full, empty = barriers(NB, 1 if GP < BOX else 2), barriers(NB, 1)  # full with what TMA brings, and the numbers
        done = barriers(2, 1)
        fence_async_shared()
        keys, ring, numbers, halves = (k, v), (q, do), (lse, delta, limit), (half_dk, half_dv)
        i_local = i_h - H0
        gl.warp_specialize(
            [
                (
                    _gather,
                    (
                        (d_k, d_v), (d_q, d_do), keys, ring, numbers, ready, full, empty, p_list, p_stats, p_limit,
                        i_key, i_h, n_pairs, 2 * n, H, G, GP, SLOTS,
                    ),
                ),
                (
                    _compute,
                    (
                        d_dq, keys, ring, numbers, (ds.index(0), dq.index(0)), halves, ready, full, empty, done,
                        p_list, p_dk, p_dv, i_key, i_end, i_h, i_local, n_pairs, n, scale, 0, H, NG, G, GP, SLOTS,
                    ),
                ),
                (
                    _compute,
                    (
                        d_dq, keys, ring, numbers, (ds.index(1), dq.index(1)), halves, ready, full, empty, done,
                        p_list, p_dk, p_dv, i_key, i_end, i_h, i_local, n_pairs, n, scale, 1, H, NG, G, GP, SLOTS,
                    ),
                ),
            ],
            [WARPS // 2, WARPS // 2],
            [REGISTERS, REGISTERS],
        )  # fmt: skip


# --- launching ---


def _rows(x: Tensor, box: int, columns: int) -> Any:
    """So many rows of contiguous x [B,T,H,D], as an array of so many columns."""
    parts = x.shape[-1] // columns
    return described(descriptor, x, (x.shape[:3].numel() * parts, columns), (columns, 1), (box * parts, columns))


def launch(run: Run, q: Tensor, do: Tensor, dq: Tensor, scale: float, first_head: int, run_heads: int) -> None:
    """One launch for `run_heads` KV heads from `first_head` on; all tensors contiguous, k and v as TMA takes them.

    q [B,T,Hq,Dk], do [B,T,Hq,Dv]; dq, fp32 [B,T,run_heads * G,Dk], is added to.
    """
    branch, where, tile, (*_, heads, dk) = run.branch, run.branch.where, run.tile, run.branch.k.shape
    group, dv = q.shape[2] // heads, branch.v.shape[-1]
    padded = pad_group(group)
    (k, _), (v, _) = (key_tiles(x, tile.BN, make=descriptor) for x in (branch.k, branch.v))
    boxed = padded >= BOX.value
    rows = (_rows(q, padded, dk), _rows(do, padded, dv)) if boxed else (q, do)
    _backward_selected[(run.at_most(run_heads), cdiv(where.l_sel, tile.BN))](
        k, v, *rows, _rows(dq, padded, dk if boxed else NARROW.value), run.dk, run.dv, *run.segments.arrays,
        where.blocks, branch.stats, where.queries[2], where.bins, where.keys, run.keys, first_head, run_heads, scale,
        H=heads, G=group, GP=padded, NG=dq.shape[2], DK=dk, DV=dv, LB=where.l_sel, BM=tile.BM, BN=tile.BN,
        NB=tile.num_stages, SLOTS=branch.indices.shape[-1], PAIRS=run.segments.pairs, WARPS=tile.num_warps,
        REGISTERS=REGISTERS if boxed else FEWER_REGISTERS, num_warps=4,
    )  # fmt: skip
