"""The kernel that proves that Triton works in an environment. Imported by verify.py there, never by the agent."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def add(a, b, out, n: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """out = a + b, for n values in blocks of `block`."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    total = tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)


def launch(a: Any, b: Any, out: Any) -> None:
    """Run `add` on three tensors of one length."""
    n = a.numel()
    add[(triton.cdiv(n, BLOCK),)](a, b, out, n, BLOCK)
