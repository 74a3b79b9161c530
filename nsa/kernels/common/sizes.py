"""What launches ask about sizes, on the host: how tiles hold heads and head dimensions (`nsa.kernels.common.tiles`)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

SMALLEST_DOT = 16


def cdiv(a: int, b: int) -> int:
    """a / b rounded up, on the host: `triton.cdiv` takes microseconds at every call."""
    return -(-a // b)


def next_power_of_2(x: int) -> int:
    """The smallest power of two that is at least x, on the host; x is at least 1."""
    return 1 << (x - 1).bit_length()


def split_dim(size: int) -> tuple[int, int]:
    """Widths of the two tiles that hold `size` columns; the second is 0 when one tile is enough."""
    if size <= SMALLEST_DOT:
        return SMALLEST_DOT, 0
    first = 1 << (size.bit_length() - 1)
    rest = size - first
    return first, max(SMALLEST_DOT, next_power_of_2(rest)) if rest else 0


@lru_cache
def widths(**dims: int) -> dict[str, int]:
    """The compile-time arguments that name head dimensions (D, or DK and DV) and their two tiles; not to be changed."""
    found = {}
    for name, dim in dims.items():
        found[name], (found[f"{name}0"], found[f"{name}1"]) = dim, split_dim(dim)
    return found


def pad_group(group_size: int) -> int:
    """GP: rows of a tile that belong to one token."""
    return next_power_of_2(group_size)


def dot_precision(dtype: torch.dtype) -> str:
    """fp32 inputs are multiplied as IEEE fp32; the setting means nothing for half precision."""
    return "ieee" if dtype == torch.float32 else "tf32"


def rows_last(x: Tensor) -> Tensor:
    """x with its last axis contiguous, as the kernels need it."""
    return x if x.stride(-1) == 1 else x.contiguous()
