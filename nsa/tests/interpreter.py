"""Triton's interpreter, which replaces the language's builtins once for a kernel.

A kernel's start replaces them until its end. As it is, each call of another jitted function within does so again, and
looks at every member of the language to find none: a third of the time that these tests took.
"""

from __future__ import annotations

from types import FunctionType

import triton.language as tl
from triton.runtime import interpreter

_replace_all = interpreter._patch_lang


def replace_builtins_once() -> None:
    """For all kernels that this process interprets."""
    interpreter._patch_lang = _replace


def _replace(fn: FunctionType) -> interpreter._LangPatchScope:
    """What was replaced, and is put back at the kernel's end."""
    languages = [value for value in fn.__globals__.values() if value is tl or value is tl.core]
    members = [tl.tensor.__add__, *(language.load for language in languages)]
    return _replace_all(fn) if any(map(tl.core.is_builtin, members)) else interpreter._LangPatchScope()
