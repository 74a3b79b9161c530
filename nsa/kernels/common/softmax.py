"""The softmax of the forward kernels, first without a maximum.

p = exp2(s) needs no maximum as long as the sums stay in range, and then costs half as much as the online softmax: no
maximum over each tile, no correction of what is summed up already. The range of bf16 is wide, 2^-80 to 2^100 in the
sum of a row, which logits between -55 and 69 keep (with values between 2^-46 and 2^20 in size). A tile of rows with a
sum out of range is computed again, online, and so are tiles of so few keys that one may have all the weight: its p is
then 1, without the rounding to bf16 that makes o another number than v. fp16 has no such range, and is online from the
start.

Keys that no row of a tile reads have p = 0, which keeps their values out unless these are infinite or NaN. Loads by
address leave such values out; TMA cannot, so a tile whose sums are no numbers is computed again without.

Without a maximum, sums over keys are held as PARTS partial sums of a row, which no other thread has to add to.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.tiles import LN2, LOG2E, LOW, add_product, zeros_pair
from nsa.kernels.tuning.lookup import architecture_for

PARTS = tl.constexpr(8)
LEAST = tl.constexpr(2.0**-80)
"""The smallest sum of a row: 2^20 keys that underflow beside it are still nothing."""
MOST = tl.constexpr(2.0**100)
"""The largest: with values below 2^20, their products with p are finite."""


def online(q: Tensor, tma: bool) -> bool:
    """Whether the softmax is online from the start; `tma`: keys and values come by TMA.

    Without it, registers also hold addresses and masks, and the way back to the online softmax would spill. Where
    kernels are interpreted both are tested.
    """
    return q.dtype == torch.float16 or not (tma or architecture_for(q) is None)


@triton.jit
def begin(BM: tl.constexpr, DV: tl.constexpr, ONLINE: tl.constexpr, AGAIN: tl.constexpr):
    """Maximum b_m [BM], in units of log2, and sums b_l [BM, 1 or PARTS], b_o [BM, DV] of no key.

    AGAIN: online now, after sums were out of range.
    """
    b_m = tl.full([BM], LOW if ONLINE or AGAIN else 0.0, tl.float32)
    b_l = tl.zeros([BM, 1 if ONLINE else PARTS], tl.float32)
    b_o0, b_o1 = zeros_pair(BM, DV)
    return b_m, b_l, b_o0, b_o1


@triton.jit
def resume(b_lse, b_o0, b_o1, ONLINE: tl.constexpr, AGAIN: tl.constexpr):
    """As `begin`, of the keys whose lse [BM], in natural logarithm, and result b_o [BM, DV] `end` has given."""
    BM: tl.constexpr = b_lse.shape[0]
    COLUMNS: tl.constexpr = 1 if ONLINE else PARTS
    b_m = tl.maximum(b_lse * LOG2E, LOW)
    b_w = tl.exp2(b_m)
    if ONLINE or AGAIN:
        b_w = tl.where(b_m > LOW, 1.0, 0.0)
    else:
        b_m = tl.zeros([BM], tl.float32)
    b_l = tl.zeros([BM, COLUMNS], tl.float32) + (b_w / COLUMNS)[:, None]
    return b_m, b_l, b_o0.to(tl.float32) * b_w[:, None], b_o1.to(tl.float32) * b_w[:, None]


@triton.jit
def add_keys(
    b_m, b_l, b_o0, b_o1, b_s, m_s, b_v0, b_v1,
    DV: tl.constexpr, MASKED: tl.constexpr, ONLINE: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """One step: logits b_s [BM, BN] in units of log2, of which m_s are read if MASKED, and values b_v [BN, DV]."""
    BM: tl.constexpr = b_s.shape[0]
    BN: tl.constexpr = b_s.shape[1]
    if ONLINE:
        if MASKED:
            b_s = tl.where(m_s, b_s, float("-inf"))
        b_new = tl.maximum(b_m, tl.max(b_s, 1))
        b_a = tl.exp2(b_m - b_new)
        b_p = tl.exp2(b_s - b_new[:, None])  # [BM, BN]
        b_m, b_l, b_o0 = b_new, b_l * b_a[:, None], b_o0 * b_a[:, None]
        if b_o0.shape[1] < DV:
            b_o1 = b_o1 * b_a[:, None]
    else:
        b_p = tl.exp2(b_s)
        if MASKED:
            b_p = tl.where(m_s, b_p, 0.0)
    if b_l.shape[1] == 1:
        b_l += tl.sum(b_p, 1)[:, None]
    else:
        b_l += tl.sum(tl.reshape(b_p, [BM, BN // PARTS, PARTS]), 1)
    b_o0, b_o1 = add_product(b_o0, b_o1, b_p.to(b_v0.dtype), b_v0, b_v1, DV, PREC)
    return b_m, b_l, b_o0, b_o1


@triton.jit
def out_of_range(b_l, m_row):
    """1 if the sum of one of the rows m_row is out of range, or not a number, else 0."""
    b_sum = tl.sum(b_l, 1)
    return tl.max((m_row & (((b_sum >= LEAST) & (b_sum <= MOST)) == 0)).to(tl.int32), 0)


@triton.jit
def not_a_number(b_o0, b_o1, DV: tl.constexpr):
    """1 if a sum is not a number, else 0: some value was none, maybe one that p = 0 should have kept out."""
    b_sum = tl.sum(b_o0, 1)
    if b_o0.shape[1] < DV:
        b_sum += tl.sum(b_o1, 1)
    return tl.max((b_sum != b_sum).to(tl.int32), 0)


@triton.jit
def only(b_x, m_x):
    """b_x [BN,D] where m_x [BN], elsewhere 0: a product with p = 0 would keep what is no number."""
    return tl.where(m_x[:, None], b_x, tl.zeros_like(b_x))


@triton.jit
def end(b_m, b_l):
    """Factor [BM] of the sums b_o, and lse [BM] in natural logarithm: 0 and -inf where no key was read."""
    b_sum = tl.sum(b_l, 1)
    m_seen = (b_sum > 0) | (b_sum != b_sum)
    b_lse = tl.where(m_seen, (b_m + tl.log2(tl.where(m_seen, b_sum, 1.0))) * LN2, float("-inf"))
    return tl.where(m_seen, 1.0 / tl.where(m_seen, b_sum, 1.0), 0.0), b_lse
