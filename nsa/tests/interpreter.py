"""Triton's interpreter without what it does for nothing, half of the time that these tests took.

A kernel's start replaces the language's builtins until its end. As it is, each call of another jitted function within
does so again, and looks at every member of the language to find none. Each sum of integers is computed twice, the
second time to see whether it overflows, which is then said in debug mode alone. What NumPy calls a type is looked up in
a table that is made for it. The type of a block is checked and named for each value, and its shape made into constants.
A reduction by xor, of which sorting is made, calls its Python function for each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_replace_all = interpreter._patch_lang
_dtype = interpreter._get_np_dtype
_reduce_by_function = interpreter.ReduceOps.generic_reduce
_begin_block, _begin_tensor = tl.block_type.__init__, tl.tensor.__init__
_dtypes: dict[str, np.dtype[Any]] = {}
_blocks: dict[tuple[Any, ...], dict[str, Any]] = {}
_shapes: dict[str, tuple[Any, Any]] = {}


def hasten() -> None:
    """All kernels that this process interprets."""
    interpreter._patch_lang = _replace
    interpreter._get_np_dtype = _known_dtype
    interpreter.ReduceOps.generic_reduce = _reduce
    tl.block_type.__init__, tl.tensor.__init__ = _known_block, _tensor
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)


def _replace(fn: FunctionType) -> interpreter._LangPatchScope:
    """What was replaced, and is put back at the kernel's end."""
    languages = [value for value in fn.__globals__.values() if value is tl or value is tl.core]
    members = [tl.tensor.__add__, *(language.load for language in languages)]
    return _replace_all(fn) if any(map(tl.core.is_builtin, members)) else interpreter._LangPatchScope()


def _known_dtype(kind: tl.dtype) -> np.dtype[Any]:
    """By its name, which says all of a type: most have no hash."""
    if kind.name not in _dtypes:
        _dtypes[kind.name] = _dtype(kind)
    return _dtypes[kind.name]


def _known_block(self: tl.block_type, element: tl.dtype, shape: Sequence[Any]) -> None:
    sizes = (size.value if isinstance(size, tl.constexpr) else size for size in getattr(shape, "values", shape))
    key = element.name, *sizes
    if key not in _blocks:
        _begin_block(self, element, shape)
        _blocks[key] = {**vars(self)}
    vars(self).update(_blocks[key], element_ty=element)  # of two pointers of one name, the address space may differ


def _tensor(self: tl.tensor, handle: interpreter.TensorHandle, kind: tl.dtype) -> None:
    if kind.name not in _shapes:
        _begin_tensor(self, handle, kind)
        _shapes[kind.name] = self.shape, self.numel
    self.handle, self.type, self.dtype = handle, kind, kind.scalar
    self.shape, self.numel = _shapes[kind.name]


def _reduce(self: interpreter.ReduceOps, given: tuple[tl.tensor, ...]) -> Any:
    if self.combine_fn is not tl.standard._xor_combine:
        return _reduce_by_function(self, given)
    (numbers,) = given
    found = np.bitwise_xor.reduce(numbers.handle.data, axis=self.axis, keepdims=self.keep_dims)
    return self.to_tensor(found, numbers.dtype)
