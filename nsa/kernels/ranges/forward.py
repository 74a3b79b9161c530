"""Attention in which every query reads one range of keys, forward: the window and the compressed branch.

A tile of consecutive tokens reads one range too (`key_ranges`), whose inner part is common to all of them and needs no
mask. On sm_90 a kernel in Gluon takes most of them (`forward_gluon`), and leaves the rest to the one here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.hopper import lacking, launcher_of, target_of, unopposed
from nsa.kernels.common.launch import launched_in_two_forms
from nsa.kernels.common.sizes import cdiv, dot_precision, pad_group, rows_last, split_dim
from nsa.kernels.common.softmax import add_keys, begin, end, not_a_number, online, only, out_of_range
from nsa.kernels.common.tiles import LOG2E, dot_rows, load_keys, load_pair, mask_free, store_pair
from nsa.kernels.common.tma import describable, key_tiles, use_tma
from nsa.kernels.ranges.key_ranges import KeyRanges
from nsa.kernels.tuning.lookup import Tile, config_for, multiprocessors

TILES = {64: Tile(64, 64, 4, 8), 128: Tile(64, 64, 4, 4), 192: Tile(64, 64, 4, 3)}
"""Of `forward_gluon`, by Dk: rows of one of its warpgroups, and keys; stages are tiles of keys loaded ahead. It is what
the registers and the shared memory hold."""

DTYPE = torch.bfloat16
"""It subtracts nothing from the logits, and fp16 has not the range."""

SHARERS = 3
"""Warpgroups of it, each with rows of its own, which read the same keys."""

FEWEST_ROWS, FEWEST_KEYS = 2**18, 320
"""For it: with fewer rows its programs, which take a multiprocessor each, leave others idle; with fewer keys of a
sequence too many tiles of rows must be computed again."""

LOOKING, LOOK = 3, 64
"""Programs on a multiprocessor that look for what it leaves, and at how many tiles at once."""


@triton.jit
def tile_of(x, T, H, B, N, G: tl.constexpr, GP: tl.constexpr, BM: tl.constexpr):
    """The x-th of N tiles of tokens of each KV head and batch entry, the last tokens first: they read the most keys.

    Returns:
        KV head and batch entry; first and last token; of each row [BM] head, token and whether there is such a row.
    """
    i_h = x % H
    i_b = (x // H % B).to(tl.int64)
    i_first = (N - 1 - x // (H * B)) * (BM // GP)
    o_g = tl.arange(0, BM) % GP
    o_t = i_first + tl.arange(0, BM) // GP
    m_row = (o_t < T) & (o_g < G)
    return i_h, i_b, i_first, tl.minimum(i_first + BM // GP - 1, T - 1), o_g, tl.minimum(o_t, T - 1), m_row


@triton.jit
def keys_of(p_lo, p_hi, o_t, i_first, i_last, BN: tl.constexpr):
    """The keys that the tokens o_t read, b_lo <= s < b_hi; those of the whole tile, and its steps as `mask_free`."""
    b_lo, b_hi = tl.load(p_lo + o_t), tl.load(p_hi + o_t)
    i_lo, i_hi = tl.load(p_lo + i_first), tl.load(p_hi + i_last)
    left, right, n = mask_free(i_lo, tl.load(p_lo + i_last), tl.load(p_hi + i_first), i_hi, BN)
    return b_lo, b_hi, i_lo, i_hi, left, right, n


@triton.jit
def _forward_step(
    b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_key, i_hi, p_k, p_v, d_k0, d_k1, d_v0, d_v1, i_row, i_h,
    s_ks, s_vs, scale, DK: tl.constexpr, DV: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr,
    ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """One tile of keys; AGAIN: the second time, without the values that no row reads."""
    o_s = i_key + tl.arange(0, BN)  # [BN]
    m_s = o_s < i_hi
    o_at = o_s.to(tl.int64)
    b_k0, b_k1 = load_keys(p_k, d_k0, d_k1, o_at * s_ks, m_s, i_row + i_key, i_h * DK, DK, MASKED, TMA)
    b_v0, b_v1 = load_keys(p_v, d_v0, d_v1, o_at * s_vs, m_s, i_row + i_key, i_h * DV, DV, MASKED, TMA)
    if AGAIN and TMA:
        b_v0, b_v1 = only(b_v0, m_s), only(b_v1, m_s)
    b_s = dot_rows(b_q0, b_q1, b_k0, b_k1, DK, PREC) * scale  # [BM, BN]
    m_tile = (o_s[None, :] >= b_lo[:, None]) & (o_s[None, :] < b_hi[:, None])
    return add_keys(b_m, b_l, b_o0, b_o1, b_s, m_tile, b_v0, b_v1, DV, MASKED, ONLINE, PREC)


@triton.jit
def _forward_tile(
    x, p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_o, p_lse, p_lo, p_hi, s_range, T, H, B, N, S,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """The x-th tile: BM // GP tokens of one KV head."""
    i_h, i_b, i_first, i_last, o_g, o_t, m_row = tile_of(x, T, H, B, N, G, GP, BM)
    o_q = o_t.to(tl.int64) * s_qt + (i_h * G + o_g).to(tl.int64) * s_qh
    b_q0, b_q1 = load_pair(p_q + i_b * s_qb, o_q, m_row, DK, True)  # [BM, DK]
    b_lo, b_hi, i_lo, i_hi, left, right, n = keys_of(
        p_lo + i_b * s_range, p_hi + i_b * s_range, o_t, i_first, i_last, BN
    )
    p_kh = p_k + i_b * s_kb + i_h.to(tl.int64) * s_kh
    p_vh = p_v + i_b * s_vb + i_h.to(tl.int64) * s_vh
    i_row = i_b.to(tl.int32) * S

    b_m, b_l, b_o0, b_o1 = begin(BM, DV, ONLINE, False)
    masked = left + n - right
    if not ONLINE:
        masked = tl.where(left < right, masked, 0)  # with so few keys all are computed below
    for MASKED in tl.static_range(2):
        for i in range(0 if MASKED else left, masked if MASKED else right):
            i_key = i_lo + (tl.where(i < left, i, i + right - left) if MASKED else i) * BN
            b_m, b_l, b_o0, b_o1 = _forward_step(
                b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_key, i_hi, p_kh, p_vh,
                d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale, DK, DV, BN, MASKED, ONLINE, PREC, TMA, False,
            )  # fmt: skip
    again = 0
    if not ONLINE:
        again = out_of_range(b_l, m_row & (b_lo < b_hi))
    if TMA:
        again = tl.maximum(again, not_a_number(b_o0, b_o1, DV))
    if TMA or not ONLINE:
        for _ in range(again):
            b_m, b_l, b_o0, b_o1 = begin(BM, DV, ONLINE, True)
            for i in tl.range(0, n, num_stages=1):  # this is rare: in few registers
                b_m, b_l, b_o0, b_o1 = _forward_step(
                    b_q0, b_q1, b_m, b_l, b_o0, b_o1, b_lo, b_hi, i_lo + i * BN, i_hi, p_kh, p_vh,
                    d_k0, d_k1, d_v0, d_v1, i_row, i_h, s_ks, s_vs, scale, DK, DV, BN, True, True, PREC, TMA, True,
                )  # fmt: skip

    o_row = (i_b * T + o_t) * (H * G) + i_h * G + o_g  # [BM]
    b_f, b_lse = end(b_m, b_l)
    store_pair(p_o, o_row * DV, m_row, b_o0 * b_f[:, None], b_o1 * b_f[:, None], DV, False)
    tl.store(p_lse + o_row, b_lse, mask=m_row)


@launched_in_two_forms
@triton.jit(do_not_specialize=["p_lo", "p_hi", "s_range", "T", "H", "B", "N", "S"])
def _forward(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_o, p_lse, p_lo, p_hi, s_range, T, H, B, N, S,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """One program: one of N tiles of each KV head and batch entry."""
    _forward_tile(
        tl.program_id(0), p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_o, p_lse, p_lo, p_hi, s_range, T, H, B, N, S,
        s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale, G, GP, DK, DV, BM, BN, ONLINE, PREC, TMA,
    )  # fmt: skip


@triton.jit
def _left(x, p_again, H, B, N, A, TOKENS: tl.constexpr, PART: tl.constexpr):
    """1 for those of the tiles x, of TOKENS tokens, of which p_again, int32 [B,H,A], names some part of PART tokens."""
    o_part = (N - 1 - x // (H * B)) * TOKENS // PART
    b_left = tl.zeros_like(x)
    for i in tl.static_range((TOKENS + PART - 1) // PART):
        o_again = (x // H % B * H + x % H) * A + o_part + i
        b_left = tl.maximum(b_left, tl.load(p_again + o_again, mask=(x < N * H * B) & (o_part + i < A), other=0))
    return tl.where(b_left > 0, 1, 0)


@launched_in_two_forms
@triton.jit(do_not_specialize=["p_lo", "p_hi", "s_range", "T", "H", "B", "N", "S", "p_again", "A"])
def _forward_again(
    p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_o, p_lse, p_lo, p_hi, s_range, T, H, B, N, S,
    s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale, p_again, A,
    G: tl.constexpr, GP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ONLINE: tl.constexpr, PREC: tl.constexpr, TMA: tl.constexpr, PART: tl.constexpr, LOOK: tl.constexpr,
):  # fmt: skip
    """As `_forward`, of the tiles with a part in p_again. These are few: a program looks at LOOK of them at once."""
    step = tl.num_programs(0)
    o_x = tl.arange(0, LOOK)
    for first in range(tl.program_id(0), N * H * B, step * LOOK):
        b_left = _left(first + o_x * step, p_again, H, B, N, A, BM // GP, PART)
        for _ in range(tl.sum(b_left, 0)):
            i = tl.min(tl.where(b_left > 0, o_x, LOOK), 0)
            b_left = tl.where(o_x == i, 0, b_left)
            _forward_tile(
                first + i * step, p_q, p_k, p_v, d_k0, d_k1, d_v0, d_v1, p_o, p_lse, p_lo, p_hi, s_range, T, H, B, N,
                S, s_qb, s_qt, s_qh, s_kb, s_ks, s_kh, s_vb, s_vs, s_vh, scale, G, GP, DK, DV, BM, BN, ONLINE, PREC,
                TMA,
            )  # fmt: skip


def ranges_forward(q: Tensor, k: Tensor, v: Tensor, ranges: KeyRanges, scale: float) -> tuple[Tensor, Tensor]:
    """Attention of q [B,T,Hq,Dk] to its ranges of k [B,S,Hkv,Dk], v [B,S,Hkv,Dv].

    Returns:
        o [B,T,Hq,Dv], 0 where a query reads no key; lse fp32 [B,T,Hq], natural logarithm, -inf there.
    """
    q, k, v = rows_last(q), rows_last(k), rows_last(v)
    batch, tokens, heads = q.shape[:3]
    tma = use_tma(k, v)
    o = q.new_empty(batch, tokens, heads, v.shape[-1])
    lse = torch.empty(batch, tokens, heads, dtype=torch.float32, device=q.device)
    sizes = sizes_of(q, k, v, f"{ranges.branch}_forward", tma)
    n = cdiv(tokens, sizes["BM"] // sizes["GP"])
    given = (
        q, k, v, *key_boxes(k, v, sizes), o, lse, ranges.lo, ranges.hi, ranges.s_query, tokens, k.shape[2], batch, n,
        k.shape[1], *strides_of(q, k, v), scale * LOG2E.value,
    )  # fmt: skip
    tiles = n * k.shape[2] * batch if o.numel() else 0
    if tma and specialised(q, k, v):
        part = TILES[q.shape[-1]].BM // sizes["GP"]
        parts = SHARERS * cdiv(tokens, SHARERS * part)
        again = torch.empty(batch, k.shape[2], parts, dtype=torch.int32, device=q.device)
        _launcher()(q, k, v, ranges, scale, o, lse, again)
        _forward_again[(min(tiles, LOOKING * multiprocessors(q.device)),)](
            *given, again, parts, ONLINE=False, PART=part, LOOK=LOOK, **{**sizes, "maxnreg": None}
        )  # few programs, and more to hold
    elif tiles:
        _forward[(tiles,)](*given, ONLINE=online(q, tma), **sizes)
    return o, lse


def against(target: str, dtype: torch.dtype, dk: int, dv: int, group: int, rows: int, keys: int) -> str | None:
    """Why `forward_gluon` takes nothing of this: a sentence, or None.

    Args:
        target: as `target_of` says it.
        dtype, dk, dv, group: of q and k, the head dimensions, query heads of a KV head.
        rows, keys: of all queries, of one sequence.
    """
    if target != "sm_90":
        return f"it is written for sm_90, not {target}"
    if dtype != DTYPE:
        return f"it computes in bf16, not {str(dtype).removeprefix('torch.')}"
    if dk not in TILES or dv != split_dim(dk)[0]:  # o is put together in the place of the queries' first part
        return f"head dimensions {dk} and {dv} are not 64 and 64, 128 and 128, or 192 and 128"
    if pad_group(group) > TILES[dk].BM:
        return f"the group size is {group}, more than a tile's {TILES[dk].BM}"
    if rows < FEWEST_ROWS:
        return f"{rows} rows of queries are fewer than {FEWEST_ROWS}"
    if keys < FEWEST_KEYS:
        return f"{keys} keys are fewer than {FEWEST_KEYS}"
    return lacking()


def specialised(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether `forward_gluon` takes most of this; k and v as `tma.describable` wants them."""
    facts = q.dtype, q.shape[-1], v.shape[-1], q.shape[2] // k.shape[2], q.shape[:3].numel(), k.shape[1]
    return unopposed(against, target_of(q.device), *facts) and describable(q)


_launcher = launcher_of("nsa.kernels.ranges.forward_gluon")


# --- what the launches of forward and backward share ---


def sizes_of(q: Tensor, k: Tensor, v: Tensor, kernel: str, tma: bool) -> dict[str, Any]:
    """The compile-time arguments that all three kernels share, with the tile of `kernel`."""
    group = q.shape[2] // k.shape[2]
    gp = pad_group(group)
    return {
        "G": group, "GP": gp, "PREC": dot_precision(q.dtype), "TMA": tma, "DK": q.shape[-1], "DV": v.shape[-1],
        **config_for(kernel + "_tma" if tma else kernel, q, v).launch(gp),
    }  # fmt: skip


def key_boxes(k: Tensor, v: Tensor, sizes: dict[str, Any]) -> tuple[Any, ...]:
    return *key_tiles(k, sizes["BN"], sizes["TMA"]), *key_tiles(v, sizes["BN"], sizes["TMA"])


def strides_of(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
    return (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
