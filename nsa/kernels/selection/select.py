"""Block scores and the choice of blocks (Eq. 8 to 11) in one kernel; `sums` does it in two where these can run, faster.

One program scores a tile of queries of one KV head. First pass, over the visible compressed keys: logits with keys as
rows, p = exp(logit - lse), summed over the heads of each query, fp32; what scores need of that (`scores`) goes to
a scratch that the program reuses for its next tile. Second pass (`top_n`): the scores of all candidate blocks,
and a cut through them that separates the best ones. So nothing of size T x T/d or T x T/l_sel exists; the scratch is
one row for each query in flight, and the sums' order never varies.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, dot_precision, next_power_of_2, pad_group, rows_last
from nsa.kernels.common.tiles import LOG2E, dot_rows, load_keys, load_pair
from nsa.kernels.common.tma import key_tiles, use_tma
from nsa.kernels.ranges.forward import keys_of, ranges_forward
from nsa.kernels.ranges.key_ranges import Borders, is_apart, of_compressed, sequence_bounds
from nsa.kernels.selection.scores import (
    LANES,
    overlap_width,
    store_probabilities,
    store_sums,
    sums_blocks,
)
from nsa.kernels.selection.shares import row_length, shares_of
from nsa.kernels.selection.sums import chosen as two_kernels
from nsa.kernels.selection.sums import select_by_sums
from nsa.kernels.selection.top_n import choose
from nsa.kernels.tuning.lookup import config_for, multiprocessors

SCORES_AT_ONCE = 4096
"""Scores of one chunk of candidates, over the queries that choose together."""


@triton.jit
def paired_rows(BM: tl.constexpr, GP: tl.constexpr):
    """Query and head of each row of a tile [BM]: the heads in pairs, and all queries' pairs before the next pair.

    Rows are columns of the product, of which a thread holds pairs that are far from each other: so the heads of a query
    are summed up without other threads.
    """
    o_row = tl.arange(0, BM)
    o_query, o_head = o_row, o_row * 0
    if GP > 1:
        TB: tl.constexpr = BM // GP
        o_query, o_head = o_row // 2 % TB, o_row // (2 * TB) * 2 + o_row % 2
    return o_query, o_head


@triton.jit
def over_heads(b_p, BN: tl.constexpr, TB: tl.constexpr, GP: tl.constexpr):
    """Sums [BN, TB] of b_p [BN, TB * GP], whose columns are in the order of `paired_rows`."""
    if GP > 1:
        b_p = tl.sum(tl.sum(tl.reshape(b_p, [BN, GP // 2, TB, 2]), 3), 1)
    return b_p


@launched
@triton.jit(do_not_specialize=["T", "FIRST", "H", "B", "N", "S", "s_range"])
def _select(
    p_q, p_k, d_k0, d_k1, p_lse, p_scratch, p_kept, p_out, p_all_lo, p_all_hi, p_all_start, s_range,
    T, FIRST, H, B, N, S, LENGTH, s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr,
    WIDTH: tl.constexpr,
    INIT: tl.constexpr, LOCAL: tl.constexpr, SLOTS: tl.constexpr, SP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TS: tl.constexpr, C: tl.constexpr, KEPT: tl.constexpr,
    SUMS: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Blocks of N tiles of queries from FIRST on, int32 p_out [B,T,H,SLOTS]. Programs take tiles in turn, the last
    queries first.
    """
    TB: tl.constexpr = BM // GP
    o_query, o_g = paired_rows(BM, GP)
    p_mine = p_scratch + tl.program_id(0).to(tl.int64) * TB * LENGTH + KEPT * LANES * (2 if SUMS else LS // D)
    for x in range(tl.program_id(0), N * H * B, tl.num_programs(0)):
        i_h = x % H
        i_b = (x // H % B).to(tl.int64)
        i_first = FIRST + (N - 1 - x // (H * B)) * TB
        i_last = tl.minimum(i_first + TB - 1, T - 1)
        o_t = i_first + o_query  # [BM]
        m_row = (o_t < T) & (o_g < G)
        o_t = tl.minimum(o_t, T - 1)
        o_q = o_t.to(tl.int64) * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
        b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_q, m_row, DK, True)  # [BM, DK]
        o_row = (i_b * T + o_t) * (H * G) + i_h * G + o_g
        b_lse = tl.load(p_lse + o_row, mask=m_row, other=float("-inf"))
        b_lse = tl.where(b_lse == float("-inf"), float("inf"), b_lse * LOG2E)  # a row without keys: p = 0
        p_lo, p_hi, p_start = p_all_lo + i_b * s_range, p_all_hi + i_b * s_range, p_all_start + i_b * s_range
        o_own = tl.minimum(i_first + tl.arange(0, TB), T - 1)  # [TB]
        o_lo, o_hi, i_lo, i_hi, left, right, n = keys_of(p_lo, p_hi, o_own, i_first, i_last, BN)
        p_kh = p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh
        i_row = i_b.to(tl.int32) * S
        for MASKED in tl.static_range(2):
            for i in range(0 if MASKED else left, left + n - right if MASKED else right):
                i_key = i_lo + (tl.where(i < left, i, i + right - left) if MASKED else i) * BN
                o_s = i_key + tl.arange(0, BN)  # [BN]
                m_s = o_s < i_hi
                o_at = o_s.to(tl.int64) * s_ks
                b_k0, b_k1 = load_keys(p_kh, d_k0, d_k1, o_at, m_s, i_row + i_key, i_h * DK, DK, MASKED, TMA)
                b_p = tl.exp2(dot_rows(b_k0, b_k1, b_q0, b_q1, DK, PREC) * scale - b_lse[None, :])  # [BN, TB * GP]
                b_p = over_heads(b_p, BN, TB, GP)  # [BN, TB]
                if MASKED:
                    b_p = tl.where((o_s[:, None] >= o_lo[None, :]) & (o_s[:, None] < o_hi[None, :]), b_p, 0.0)
                if SUMS:
                    store_sums(b_p, p_mine, i_key, i_hi, LENGTH, L, D, LS, BN, TB)
                else:
                    o_out = o_s[:, None] - o_lo[None, :]
                    store_probabilities(b_p, p_mine, o_out, m_s[:, None] & (o_out >= 0), LENGTH, TB)
        tl.debug_barrier()  # the scratch is read by other threads than wrote it

        for i_part in range(TB // TS):
            o_r = i_part * TS + tl.arange(0, TS)  # [TS], rows of the scratch
            o_q1 = tl.minimum(i_first + o_r, T - 1)
            choose(
                p_mine + o_r * LENGTH, p_kept + (tl.program_id(0) * TS + tl.arange(0, TS)) * (2 * SP),
                p_out + ((i_b * T + o_q1) * H + i_h) * SLOTS, tl.load(p_hi + o_q1) - tl.load(p_lo + o_q1),
                (o_q1 - tl.load(p_start + o_q1)) // LS, i_first + o_r < T,
                L, D, LS, WIDTH, INIT, LOCAL, SLOTS, SP, TS, C, KEPT, SUMS,
            )  # fmt: skip
        tl.debug_barrier()  # the next tile overwrites the scratch


def select_blocks(
    q: Tensor, k_cmp: Tensor, config: NSAConfig, scale: float, cu_seqlens: Borders, lse: Tensor | None = None,
    q_start: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The blocks that each query reads.

    Args:
        q, k_cmp: [B,T,Hq,Dk], [B,Tc,Hkv,Dk].
        config, scale, cu_seqlens, q_start: as in `nsa.ops.select_blocks`.
        lse: fp32 [B,T,Hq], natural, of compressed attention; None computes it.

    Returns:
        int32 [B,T,Hkv,n_sel], ascending, -1 padded at the end.
    """
    q, k_cmp = rows_last(q), rows_last(k_cmp)
    where = of_compressed(q, k_cmp, config, cu_seqlens, q_start)
    if lse is None:
        lse = ranges_forward(q, k_cmp, k_cmp, where, scale)[1]
    batch, tokens, heads = q.shape[0], q.shape[1], k_cmp.shape[2]
    chosen = torch.empty(batch, tokens, heads, config.n_sel, dtype=torch.int32, device=q.device)
    if not chosen.numel():
        return chosen
    start = sequence_bounds(tokens, cu_seqlens, q.device, q_start).start
    anywhere = q_start is not None or is_apart(cu_seqlens)
    lse = lse.float().contiguous()
    if two_kernels(q, k_cmp, config, cu_seqlens is not None):
        select_by_sums(q, k_cmp, config, scale, where, lse, start, anywhere, chosen)
        return chosen
    tma = use_tma(k_cmp)
    group, row = q.shape[2] // heads, config_for("select_tma" if tma else "select", q, k_cmp)
    gp, tile = pad_group(group), row.launch(pad_group(group))
    sums, at_once = cu_seqlens is None and sums_blocks(config), tile["BM"] // gp
    shares = shares_of(tokens, k_cmp.shape[1], config, at_once, anywhere)
    programs = min(cdiv(tokens, at_once) * heads * batch, row.resident * multiprocessors(q.device))
    length = max(row_length(share, k_cmp.shape[1], config, sums) for share in shares)
    scratch = torch.empty(programs, at_once, length, dtype=torch.float32, device=q.device)
    slots = max(2, next_power_of_2(config.n_sel))
    kept = torch.empty(programs, at_once, 2, slots, dtype=torch.int32, device=q.device)
    keys = key_tiles(k_cmp, tile["BN"], tma)
    for share in shares:
        n = cdiv(share.queries, at_once)
        _select[(min(n * heads * batch, programs),)](
            q, k_cmp, *keys, lse, scratch, kept, chosen, where.lo, where.hi, start,
            where.s_query, tokens, share.first, heads, batch, n, k_cmp.shape[1], length, *q.stride()[:3],
            *k_cmp.stride()[:3], scale * LOG2E.value,
            G=group, GP=gp, DK=q.shape[-1], L=config.l, D=config.d, LS=config.l_sel,
            WIDTH=overlap_width(config), INIT=config.init_blocks, LOCAL=config.local_blocks, SLOTS=config.n_sel,
            SP=slots, TS=max(1, min(at_once, SCORES_AT_ONCE // (share.rows * LANES.value))), C=share.rows,
            KEPT=share.kept, SUMS=sums, PREC=dot_precision(q.dtype), TMA=tma, **tile,
        )  # fmt: skip
    return chosen
