"""Tensor descriptors: tiles that the copy engine of sm_90 loads, where the installed Triton can describe them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nsa.kernels.common import split_dim
from nsa.kernels.configs import architecture_for

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # Triton before 3.4: pointer loads only
    TensorDescriptor = None

NONE = (None, None)


def copy_engine(*tensors: Tensor) -> bool:
    """Whether this Triton and this card can load tiles of all of these [B,T,H,D] by descriptor."""
    if TensorDescriptor is None or architecture_for(tensors[0]) != "sm_90":
        return False
    return all(_describable(x) for x in tensors)


def _describable(x: Tensor) -> bool:
    """Half precision, batch entries one after another, heads side by side, rows that begin at multiples of 16 bytes.

    IEEE products of fp32 read their operands from registers, which would then spill by thousands of bytes.
    """
    bytes_of = x.element_size()
    if bytes_of > 2 or not x.numel():
        return False
    aligned = x.data_ptr() % 16 == 0 and x.stride(1) * bytes_of % 16 == 0 and x.shape[-1] * bytes_of % 16 == 0
    in_turn = x.shape[0] == 1 or x.stride(0) == x.shape[1] * x.stride(1)
    return aligned and in_turn and x.stride(2) == x.shape[-1] and x.stride(3) == 1


def key_tiles(x: Tensor, rows: int, wanted: bool = True) -> tuple[Any, Any]:
    """The two tiles of `rows` keys or values of one head of x [B,T,H,D]; None for what there is not."""
    if not wanted:
        return NONE
    batch, tokens, heads, size = x.shape
    flat = x.as_strided((batch * tokens, heads * size), (x.stride(1), 1))
    return tuple(TensorDescriptor.from_tensor(flat, [rows, width]) if width else None for width in split_dim(size))


def query_tiles(x: Tensor, tokens: int, group: int, wanted: bool = True) -> tuple[Any, Any]:
    """The two tiles of `tokens` tokens and `group` heads of x [B,T,H,D]."""
    if not wanted:
        return NONE
    batch, length, heads, size = x.shape
    flat = x.as_strided((batch * length, heads, size), (x.stride(1), size, 1))
    boxes = ([tokens, group, width] if width else None for width in split_dim(size))
    return tuple(box and TensorDescriptor.from_tensor(flat, box) for box in boxes)
