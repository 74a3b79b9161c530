"""Sums of gradients that were computed in parts, always in the same order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.tiles import cdiv, next_power_of_2

SUMMED = 256
"""Elements of one program of the sum of parts."""


@launched
@triton.jit(do_not_specialize=["PARTS"])
def _sum_parts(p_dks, p_dvs, p_dk, p_dv, NK, NV, PARTS, PP: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK elements of dk or of dv: the sum of their PARTS parts, all loaded at once. NK, NV elements in all."""
    o_x = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    o_part = tl.arange(0, PP)[:, None]  # [PP, 1]
    if tl.program_id(1) == 0:
        b_dk = tl.load(p_dks + o_part.to(tl.int64) * NK + o_x[None, :], mask=(o_part < PARTS) & (o_x < NK), other=0.0)
        tl.store(p_dk + o_x, tl.sum(b_dk, 0).to(p_dk.dtype.element_ty), mask=o_x < NK)
    else:
        b_dv = tl.load(p_dvs + o_part.to(tl.int64) * NV + o_x[None, :], mask=(o_part < PARTS) & (o_x < NV), other=0.0)
        tl.store(p_dv + o_x, tl.sum(b_dv, 0).to(p_dv.dtype.element_ty), mask=o_x < NV)


def added_up(dks: Tensor, dvs: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums of parts [parts,B,S,Hkv,D*] in one launch: [B,S,Hkv,D*]."""
    dk, dv = (torch.empty(x.shape[1:], dtype=dtype, device=x.device) for x in (dks, dvs))
    if dks.numel():
        parts, most = dks.shape[0], max(dk.numel(), dv.numel())
        _sum_parts[(cdiv(most, SUMMED), 2)](
            dks, dvs, dk, dv, dk.numel(), dv.numel(), parts, PP=next_power_of_2(parts), BLOCK=SUMMED, num_warps=4
        )
    return dk, dv
