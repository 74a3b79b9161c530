"""Sums of gradients that were computed in splits, always in the same order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2

SUMMED = 256
"""Elements of one program of the sum of splits."""


@triton.jit
def _reduce_block(p_parts, p_x, N, SPLITS, SP: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK of N elements: the sum of their SPLITS splits, all loaded at once."""
    o_x = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    o_split = tl.arange(0, SP)[:, None]  # [SP, 1]
    m_x = (o_split < SPLITS) & (o_x < N)
    b_x = tl.load(p_parts + o_split.to(tl.int64) * N + o_x[None, :], mask=m_x, other=0.0)
    tl.store(p_x + o_x, tl.sum(b_x, 0).to(p_x.dtype.element_ty), mask=o_x < N)


@launched
@triton.jit(do_not_specialize=["SPLITS"])
def _reduce(p_dks, p_dvs, p_dk, p_dv, NK, NV, SPLITS, SP: tl.constexpr, BLOCK: tl.constexpr):
    """A block of dk or of dv."""
    if tl.program_id(1) == 0:
        _reduce_block(p_dks, p_dk, NK, SPLITS, SP, BLOCK)
    else:
        _reduce_block(p_dvs, p_dv, NV, SPLITS, SP, BLOCK)


def reduce_splits(dks: Tensor, dvs: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums of splits [splits,B,S,Hkv,D*] in one launch: [B,S,Hkv,D*]."""
    dk, dv = (torch.empty(x.shape[1:], dtype=dtype, device=x.device) for x in (dks, dvs))
    if dks.numel():
        splits, most = dks.shape[0], max(dk.numel(), dv.numel())
        _reduce[(cdiv(most, SUMMED), 2)](
            dks, dvs, dk, dv, dk.numel(), dv.numel(), splits, SP=next_power_of_2(splits), BLOCK=SUMMED, num_warps=4
        )
    return dk, dv
