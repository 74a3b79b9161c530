"""A bench of which it is known how much slower it is: with `part` more work than it needs. Rows of JSON lines.

Two kinds of rows: those of a loop in plain Python on a CPU; on a GPU those of Triton kernels, one that computes and one
that moves memory. A file for `nsa-pod compare` too, beside which `nsa_pod_bench` can be imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from nsa_pod_bench import Bench

if "torch" in sys.modules:  # whoever wants the GPU imports it before
    import torch
    import triton
    import triton.language as tl

    @triton.jit(do_not_specialize=["turns"])
    def _compute(x, out, turns, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + at)
        for _ in range(turns):
            value = value * 0.999 + 0.5
        tl.store(out + at, value)

    @triton.jit
    def _move(x, out, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) * 2)


BLOCK = 1024
_PROGRAMS = 2048
Case = tuple[Callable[[], Sequence[Any]], Callable[..., Any]]
"""What makes the inputs, and what is timed."""


def cases(device: str, part: float) -> dict[str, Case]:
    """By name, each with `part` more work."""
    if device == "cpu":
        return {f"loop {turns}": (tuple, _looped(round(turns * (1 + part)))) for turns in (3_000, 8_000)}
    return {
        **{f"compute {turns}": _computing(round(turns * (1 + part))) for turns in (1_500, 5_000)},
        **{f"move {mib} MiB": _moving(round((mib << 18) // BLOCK * (1 + part))) for mib in (256, 512)},
    }


def measure(path: str, device: str, part: float, seconds: float, **keys: str) -> None:
    """Write a row for each case, with `keys` beside the case's name."""
    bench = Bench(path, seconds=seconds)
    for name, (make, call) in cases(device, part).items():
        bench.time({"case": name, **keys}, make=make, call=call)


def _looped(turns: int) -> Callable[[], int]:
    def call() -> int:
        total = 0
        for turn in range(turns):
            total += turn * turn % 7
        return total

    return call


def _computing(turns: int) -> Case:
    def call(x: Any) -> Any:
        out = torch.empty_like(x)
        _compute[(_PROGRAMS,)](x, out, turns, BLOCK=BLOCK)
        return out

    return lambda: (torch.rand(_PROGRAMS * BLOCK, device="cuda"),), call


def _moving(blocks: int) -> Case:
    def call(x: Any) -> Any:
        out = torch.empty_like(x)
        _move[(blocks,)](x, out, BLOCK=BLOCK)
        return out

    return lambda: (torch.rand(blocks * BLOCK, device="cuda"),), call
