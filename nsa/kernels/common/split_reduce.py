"""Sums of gradients that were computed in splits, always in the same order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.tiles import cdiv, next_power_of_2

SUMMED = 256
"""Elements of one program of the sum of splits."""


@launched
@triton.jit(do_not_specialize=["SPLITS"])
def _reduce(p_dks, p_dvs, p_dk, p_dv, NK, NV, SPLITS, SP: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK elements of dk or of dv: the sum of their SPLITS splits, all loaded at once. NK, NV elements in all."""
    o_x = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    o_split = tl.arange(0, SP)[:, None]  # [SP, 1]
    if tl.program_id(1) == 0:
        b_dk = tl.load(
            p_dks + o_split.to(tl.int64) * NK + o_x[None, :], mask=(o_split < SPLITS) & (o_x < NK), other=0.0
        )
        tl.store(p_dk + o_x, tl.sum(b_dk, 0).to(p_dk.dtype.element_ty), mask=o_x < NK)
    else:
        b_dv = tl.load(
            p_dvs + o_split.to(tl.int64) * NV + o_x[None, :], mask=(o_split < SPLITS) & (o_x < NV), other=0.0
        )
        tl.store(p_dv + o_x, tl.sum(b_dv, 0).to(p_dv.dtype.element_ty), mask=o_x < NV)


def reduce_splits(dks: Tensor, dvs: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums of splits [splits,B,S,Hkv,D*] in one launch: [B,S,Hkv,D*]."""
    dk, dv = (torch.empty(x.shape[1:], dtype=dtype, device=x.device) for x in (dks, dvs))
    if dks.numel():
        splits, most = dks.shape[0], max(dk.numel(), dv.numel())
        _reduce[(cdiv(most, SUMMED), 2)](
            dks, dvs, dk, dv, dk.numel(), dv.numel(), splits, SP=next_power_of_2(splits), BLOCK=SUMMED, num_warps=4
        )
    return dk, dv
