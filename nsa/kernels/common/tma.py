"""TMA: tiles that sm_90 loads by a tensor descriptor, where the installed Triton can describe them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from nsa.kernels.common.sizes import split_dim
from nsa.kernels.tuning.lookup import architecture_for

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # Triton before 3.4: pointer loads only
    TensorDescriptor = None

NONE = (None, None)


def use_tma(*tensors: Tensor) -> bool:
    """Whether this Triton and this card can load tiles of all of these [B,T,H,D] by descriptor."""
    if TensorDescriptor is None or architecture_for(tensors[0]) != "sm_90":
        return False
    return all(describable(x) for x in tensors)


def describable(x: Tensor) -> bool:
    """Half precision, batch entries one after another, heads side by side, rows that begin at multiples of 16 bytes.

    IEEE products of fp32 read their operands from registers, which would then spill by thousands of bytes.
    """
    bytes_of = x.element_size()
    if bytes_of > 2 or not x.numel():
        return False
    (batch, tokens, _, size), (s_batch, s_token, s_head, s_column) = x.shape, x.stride()
    aligned = x.data_ptr() % 16 == 0 and s_token * bytes_of % 16 == 0 and size * bytes_of % 16 == 0
    in_turn = batch == 1 or s_batch == tokens * s_token
    return aligned and in_turn and s_head == size and s_column == 1


def key_tiles(x: Tensor, rows: int, wanted: bool = True, make: Any = TensorDescriptor) -> tuple[Any, Any]:
    """The two tiles of `rows` keys or values of one head of x [B,T,H,D]; None for what there is not.

    `make` makes a descriptor of a tensor, as the constructor of TensorDescriptor.
    """
    if not wanted:
        return NONE
    batch, tokens, heads, size = x.shape
    return _tiles(make, x, (batch * tokens, heads * size), (x.stride(1), 1), (rows,))


def query_tiles(
    x: Tensor, tokens: int, group: int, wanted: bool = True, make: Any = TensorDescriptor
) -> tuple[Any, Any]:
    """The two tiles of `tokens` tokens and `group` heads of x [B,T,H,D]; see `key_tiles`."""
    if not wanted:
        return NONE
    batch, length, heads, size = x.shape
    return _tiles(make, x, (batch * length, heads, size), (x.stride(1), size, 1), (tokens, group))


Sizes = tuple[int, ...]


def _tiles(make: Any, x: Tensor, shape: Sizes, strides: Sizes, box: Sizes) -> tuple[Any, Any]:
    """x as an array of this shape, in boxes whose last axis is one of the parts of D."""
    first, second = split_dim(x.shape[-1])
    rest = described(make, x, shape, strides, (*box, second)) if second else None
    return described(make, x, shape, strides, (*box, first)), rest


@lru_cache(maxsize=1024)
def _checked(make: Any, dtype: torch.dtype, shape: Sizes, strides: Sizes, box: Sizes) -> tuple[Any, dict[str, Any]]:
    """The type of a descriptor, and what it holds beside its tensor, as the constructor approves it."""
    standing_in = torch.empty(0, dtype=dtype, device="meta")
    made = make(standing_in, list(shape), list(strides), list(box))
    return type(made), {**vars(made), "base": None}


def described(make: Any, x: Tensor, shape: Sizes, strides: Sizes, box: Sizes) -> Any:
    """A descriptor of x, without the microseconds of the constructor's checks where they were made before."""
    return of_kind(*_checked(make, x.dtype, shape, strides, box), x)


def of_kind(kind: type, facts: Mapping[str, Any], base: Any) -> Any:
    """A descriptor of `base`, by its class and what it holds beside that; nothing is checked."""
    found: Any = object.__new__(kind)
    vars(found).update(facts, base=base)
    return found
