"""Block scores and the choice of blocks (Eq. 8 to 11) in one kernel.

One program scores a tile of queries of one KV head. First pass, over the visible compressed keys: logits with keys as
rows, p = exp(logit - lse), summed over the heads of each query, fp32, into a scratch that the program reuses for its
next tile. Second pass: every candidate block gathers the compressed tokens that overlap it, weighted by the overlap,
and the best ones are kept in a list that only ever grows better. So nothing of size T x T/d or T x T/l_sel exists; the
scratch is one row of compressed tokens for each query in flight, and the sums' order never varies.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.blocks import overlap_band
from nsa.config import NSAConfig
from nsa.kernels import compressed
from nsa.kernels.common import (
    LOG2E,
    dot_precision,
    dot_rows,
    load_keys,
    load_pair,
    mask_free,
    pad_group,
    rows_last,
    split_dim,
)
from nsa.kernels.configs import config_for
from nsa.kernels.descriptors import copy_engine, key_tiles
from nsa.kernels.geometry import compressed_spans, segments

CANDIDATES_IN_REGISTERS = 2048
"""Scores of one chunk, over all queries of the tile."""


@triton.jit
def _probabilities_step(
    b_q0, b_q1, b_lse, b_lo, b_hi, p_k, d_k0, d_k1, i_row, i_column, p_scratch, s_ks, i_key, i_hi, i_lo, LENGTH, scale,
    DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr, GP: tl.constexpr, TB: tl.constexpr, BN: tl.constexpr,
    MASKED: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """p of BN keys, summed over each query's heads, to the scratch [TB, LENGTH]."""
    o_s = i_key + tl.arange(0, BN)  # [BN]
    m_s = o_s < i_hi
    o_at = o_s.to(tl.int64) * s_ks
    b_k0, b_k1 = load_keys(p_k, d_k0, d_k1, o_at, m_s, i_row + i_key, i_column, DK, DK0, DK1, MASKED, TMA)
    b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK1, PREC) * scale - b_lse[None, :])  # [BN, TB * GP]
    if MASKED:
        b_p = tl.where((o_s[:, None] >= b_lo[None, :]) & (o_s[:, None] < b_hi[None, :]), b_p, 0.0)
    b_sum = tl.sum(tl.reshape(b_p, [BN, TB, GP]), 2)  # [BN, TB]
    o_out = tl.arange(0, TB)[None, :] * LENGTH + (o_s - i_lo)[:, None]
    tl.store(p_scratch + o_out, b_sum, mask=m_s[:, None])


@triton.jit
def _block_scores(
    p_scratch, o_b, o_first, o_seen, LENGTH,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, WIDTH: tl.constexpr, TB: tl.constexpr, BJ: tl.constexpr,
):  # fmt: skip
    """Scores [TB, BJ] of blocks o_b [BJ]: overlap-weighted sums over the o_seen [TB] visible compressed tokens."""
    b_score = tl.zeros([TB, BJ], tl.float32)
    o_row = tl.arange(0, TB) * LENGTH + o_first  # [TB]
    o_start = tl.maximum(o_b * LS - L + D, 0) // D  # [BJ], the first compressed token that reaches into the block
    for k in tl.static_range(WIDTH):
        o_i = o_start + k  # [BJ]
        b_shared = tl.minimum(o_i * D + L, (o_b + 1) * LS) - tl.maximum(o_i * D, o_b * LS)
        m_i = (o_i[None, :] < o_seen[:, None]) & (b_shared > 0)[None, :]
        b_p = tl.load(p_scratch + (o_row[:, None] + o_i[None, :]), mask=m_i, other=0.0)
        b_score += b_p * b_shared.to(tl.float32)[None, :]
    return b_score


@triton.jit
def _carried(b_x):
    """b_x itself: Triton 3.0 and 3.1 crash on a reduction of just what a loop carries."""
    return b_x.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)


@triton.jit
def _keep_best(b_best, b_block, b_score, o_b, FREE: tl.constexpr):
    """Replace kept blocks, the worst first, while a candidate scores more than the worst that is kept.

    b_best, b_block [TB, K]; b_score [TB, BJ], at least -1, of blocks o_b [BJ], all of higher index than those kept, so
    that the kept win ties. No more steps are needed than a query has candidates above its worst.
    """
    b_worst = tl.min(_carried(b_best), 1)  # [TB]
    steps = tl.max(tl.sum((b_score > b_worst[:, None]).to(tl.int32), 1), 0)
    for _ in range(tl.minimum(steps, FREE)):
        b_top = tl.max(_carried(b_score), 1)
        b_worst = tl.min(_carried(b_best), 1)
        b_new = tl.min(tl.where(b_score == b_top[:, None], o_b[None, :], 1 << 30), 1)  # lowest index of the best
        b_old = tl.max(tl.where(b_best == b_worst[:, None], b_block, -(1 << 30)), 1)  # highest index of the worst
        m_slot = (b_top > b_worst)[:, None] & (b_block == b_old[:, None]) & (b_best == b_worst[:, None])
        b_best = tl.where(m_slot, b_top[:, None], b_best)
        b_block = tl.where(m_slot, b_new[:, None], b_block)
        b_score = tl.where(o_b[None, :] == b_new[:, None], -1.0, b_score)
    return b_best, b_block


@triton.jit(do_not_specialize=["T", "H", "B", "N", "S", "LENGTH", "s_span"])
def _select(
    p_q, p_k, d_k0, d_k1, p_lse, p_scratch, p_out, p_all_lo, p_all_hi, p_all_start, s_span, T, H, B, N, S, LENGTH,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DK0: tl.constexpr, DK1: tl.constexpr,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, WIDTH: tl.constexpr,
    INIT: tl.constexpr, LOCAL: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BJ: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Blocks of every query, int32 p_out [B,T,H,SLOTS]. Programs take tiles in turn, the last tokens first."""
    TB: tl.constexpr = BM // GP
    FREE: tl.constexpr = SLOTS - INIT - LOCAL
    o_slot = tl.arange(0, SP)  # [SP]
    o_g = tl.arange(0, BM) % GP  # [BM]
    p_mine = p_scratch + tl.program_id(0).to(tl.int64) * TB * LENGTH
    for x in range(tl.program_id(0), N * H * B, tl.num_programs(0)):
        i_h = x % H
        i_b = (x // H % B).to(tl.int64)
        i_first = (N - 1 - x // (H * B)) * TB
        i_last = tl.minimum(i_first + TB - 1, T - 1)
        o_t = i_first + tl.arange(0, BM) // GP  # [BM]
        m_row = (o_t < T) & (o_g < G)
        o_t = tl.minimum(o_t, T - 1)
        o_q = o_t.to(tl.int64) * s_qt + (i_h * G + o_g) * s_qh
        b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_q, m_row, DK, DK0, DK1, True)  # [BM, DK]
        o_row = (i_b * T + o_t) * (H * G) + i_h * G + o_g
        b_lse = tl.load(p_lse + o_row, mask=m_row, other=float("-inf"))
        b_lse = tl.where(b_lse == float("-inf"), float("inf"), b_lse * LOG2E)  # a row without keys: p = 0
        p_lo, p_hi, p_start = p_all_lo + i_b * s_span, p_all_hi + i_b * s_span, p_all_start + i_b * s_span
        b_lo = tl.load(p_lo + o_t)
        b_hi = tl.load(p_hi + o_t)
        i_lo = tl.load(p_lo + i_first)
        i_hi = tl.load(p_hi + i_last)
        left, right, n = mask_free(i_lo, tl.load(p_lo + i_last), tl.load(p_hi + i_first), i_hi, BN)
        p_kh = p_k + i_b * s_kb + i_h * s_kh
        i_row = i_b.to(tl.int32) * S
        for i in range(left, right):
            _probabilities_step(
                b_q0, b_q1, b_lse, b_lo, b_hi, p_kh, d_k0, d_k1, i_row, i_h * DK, p_mine, s_ks,
                i_lo + i * BN, i_hi, i_lo, LENGTH, scale, DK, DK0, DK1, GP, TB, BN, False, PREC, TMA,
            )  # fmt: skip
        for i in range(0, left + n - right):
            i_key = i_lo + tl.where(i < left, i, i + right - left) * BN
            _probabilities_step(
                b_q0, b_q1, b_lse, b_lo, b_hi, p_kh, d_k0, d_k1, i_row, i_h * DK, p_mine, s_ks,
                i_key, i_hi, i_lo, LENGTH, scale, DK, DK0, DK1, GP, TB, BN, True, PREC, TMA,
            )  # fmt: skip
        tl.debug_barrier()  # the scratch is read by other threads than wrote it

        o_q1 = tl.minimum(i_first + tl.arange(0, TB), T - 1)  # [TB]
        o_lo = tl.load(p_lo + o_q1)
        o_seen = tl.load(p_hi + o_q1) - o_lo
        b_now = (o_q1 - tl.load(p_start + o_q1)) // LS  # [TB], the block of each query
        m_free = o_slot < FREE  # the other slots hold forced blocks
        b_best = tl.where(m_free, -1.0, float("inf"))[None, :] + tl.zeros([TB, SP], tl.float32)
        b_block = tl.where(m_free, -1 - o_slot, -1 - SP)[None, :] + tl.zeros([TB, SP], tl.int32)
        for i in range(INIT // BJ, tl.cdiv(tl.max(b_now, 0) + 1 - LOCAL, BJ)):
            o_b = i * BJ + tl.arange(0, BJ)  # [BJ]
            b_score = _block_scores(p_mine, o_b, o_lo - i_lo, o_seen, LENGTH, L, D, LS, WIDTH, TB, BJ)
            m_b = (o_b >= INIT)[None, :] & (o_b[None, :] <= b_now[:, None] - LOCAL)
            b_best, b_block = _keep_best(b_best, b_block, tl.where(m_b, b_score, -1.0), o_b, FREE)
        b_forced = tl.where(o_slot < FREE + INIT, o_slot - FREE, 0)[None, :]
        m_forced = (o_slot < FREE + INIT)[None, :] & (b_forced <= b_now[:, None])
        b_local = b_now[:, None] - (o_slot - FREE - INIT)[None, :]
        m_local = (o_slot >= FREE + INIT)[None, :] & (o_slot < SLOTS)[None, :] & (b_local >= INIT)
        b_block = tl.where(m_free[None, :], b_block, tl.where(m_local, b_local, tl.where(m_forced, b_forced, -1)))
        b_block = tl.sort(tl.where(b_block < 0, 1 << 30, b_block), 1)
        o_out = (i_b * T + o_q1) * H + i_h
        m_out = (i_first + tl.arange(0, TB) < T)[:, None] & (o_slot < SLOTS)[None, :]
        tl.store(
            p_out + o_out[:, None] * SLOTS + o_slot[None, :], tl.where(b_block == 1 << 30, -1, b_block), mask=m_out
        )
        tl.debug_barrier()  # the next tile overwrites the scratch


def select(
    q: Tensor,
    k_cmp: Tensor,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None,
    lse: Tensor | None = None,
    q_start: Tensor | None = None,
) -> Tensor:
    """The blocks that each query reads.

    Args:
        q, k_cmp: [B,T,Hq,Dk], [B,Tc,Hkv,Dk].
        config, scale, cu_seqlens, q_start: as in `compressed.forward`.
        lse: fp32 [B,T,Hq] of `compressed.forward`; None computes it.

    Returns:
        int32 [B,T,Hkv,n_sel], ascending, -1 padded at the end.
    """
    q, k_cmp = rows_last(q), rows_last(k_cmp)
    if lse is None:
        lse = compressed.forward(q, k_cmp, k_cmp, config, scale, cu_seqlens, q_start)[1]
    batch, tokens, heads = q.shape[0], q.shape[1], k_cmp.shape[2]
    where = compressed_spans(tokens, k_cmp.shape[1], config, cu_seqlens, q.device, q_start)
    chosen = torch.empty(batch, tokens, heads, config.n_sel, dtype=torch.int32, device=q.device)
    tma = copy_engine(k_cmp)
    group, row = q.shape[2] // heads, config_for("select_tma" if tma else "select", q, k_cmp)
    gp, tile = pad_group(group), row.launch(pad_group(group))
    if not chosen.numel():
        return chosen
    n = triton.cdiv(tokens, tile["BM"] // gp)
    programs = min(n * heads * batch, row.resident * _multiprocessors(q.device))
    length = max(1, k_cmp.shape[1])
    scratch = torch.empty(programs, tile["BM"] // gp, length, dtype=torch.float32, device=q.device)
    start = segments(tokens, cu_seqlens, q.device, q_start).start
    (dk0, dk1), slots = split_dim(q.shape[-1]), max(2, triton.next_power_of_2(config.n_sel))
    _select[(programs,)](
        q, k_cmp, *key_tiles(k_cmp, tile["BN"], tma), lse.float().contiguous(), scratch, chosen,
        where.lo, where.hi, start,
        where.s_query, tokens, heads, batch, n, k_cmp.shape[1], length, *q.stride()[:3], *k_cmp.stride()[:3],
        scale * LOG2E.value,
        G=group, GP=gp, DK=q.shape[-1], DK0=dk0, DK1=dk1, L=config.l, D=config.d, LS=config.l_sel,
        WIDTH=_overlap_width(config), INIT=config.init_blocks, LOCAL=config.local_blocks, SLOTS=config.n_sel, SP=slots,
        BJ=max(16, CANDIDATES_IN_REGISTERS // (tile["BM"] // gp)), PREC=dot_precision(q.dtype), TMA=tma,
        **tile,
    )  # fmt: skip
    return chosen


@lru_cache
def _overlap_width(config: NSAConfig) -> int:
    """The most compressed tokens that overlap one block."""
    return overlap_band(1, config)[1].shape[1]


@lru_cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
