"""Shapes for the kernels' tests. They run in Triton's interpreter on a CPU (small, no bf16) and on a GPU alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
import triton
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common import tma
from nsa.kernels.ranges import backward, forward
from nsa.kernels.selected import tile_scheduler
from nsa.kernels.selection import select
from nsa.tests.testing import Outcome, Problem, assert_outcome, outcome

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SLOW = () if DEVICE == "cuda" else (pytest.mark.slow,)
"""Marks of what the interpreter takes long over, and a GPU does not."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16) if DEVICE == "cuda" else (torch.float32, torch.float16)
BRANCHES = ("compressed", "select", "selected", "window", "combine")
"""The operations that the whole one is routed as."""
SMALL = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)

CASES = {
    "batch": Problem(SMALL, tokens=45, batch=2, kv_heads=2, group_size=2, dk=32, dv=16),
    "packed": Problem(SMALL, lengths=(0, 13, 1, 0, 30), kv_heads=2, group_size=6, dk=16, dv=16),
    "packed-after": Problem(
        SMALL, lengths=(3, 0, 18, 1), before=(44, 9, 0, 61), kv_heads=2, group_size=2, dk=16, dv=16
    ),
    "one-head": Problem(SMALL, tokens=70, dk=16, dv=32),
    "wide-group": Problem(SMALL, tokens=21, group_size=16, dk=48, dv=40),
    "group-of-12": Problem(SMALL, tokens=19, group_size=12, dk=16, dv=16),
    "one-token": Problem(SMALL, tokens=1, group_size=4, dk=16, dv=16),
}


CHUNKS = {"alike": (15, (30, 30)), "each-its-own": (15, (0, 27)), "one-token": (1, (44, 3))}
"""Chunks of the case `batch`: how many queries, and where each batch entry's first one stands."""


def chunk(name: str) -> tuple[dict[str, Tensor], Tensor]:
    """Tensors of the case `batch` with only a chunk's queries and gates, and q_start."""
    tokens, starts = CHUNKS[name]
    found = replace(CASES["batch"], device=DEVICE).tensors()
    late = {name: found[name][:, :tokens].contiguous() for name in ("q", "gates")}
    return {**found, **late}, torch.tensor(starts, device=DEVICE)


def problems() -> list[object]:
    """Every case in every dtype."""
    return [
        pytest.param(replace(problem, dtype=dtype, device=DEVICE), id=f"{name}-{str(dtype).removeprefix('torch.')}")
        for name, problem in CASES.items()
        for dtype in DTYPES
    ]


def by_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernels load tiles by descriptor: the interpreter stands in for TMA."""
    if tma.TensorDescriptor is None:
        pytest.skip(f"Triton {triton.__version__} has no tensor descriptors")
    if DEVICE == "cpu":
        for module in (backward, forward, select, tile_scheduler):
            monkeypatch.setattr(module, "use_tma", lambda *tensors: True)


def judge(
    problem: Problem, tensors: Mapping[str, Tensor], actual: Callable[..., Tensor], oracle: Callable[..., Tensor]
) -> Outcome:
    """Output and gradients of `actual` on `tensors` within the dtype's tolerance of the fp64 oracle's."""
    found = outcome(actual, tensors)
    assert_outcome(found, outcome(oracle, {name: x.double() for name, x in tensors.items()}), problem.dtype)
    return found


def far_apart(sign: int, dk: int) -> tuple[float, float]:
    """Two numbers, exact in bf16, for one column of q and one of k, that move all logits by about 76 to this sign.

    What the softmax does without a maximum is then out of its range.
    """
    each = round((76 * dk**0.5) ** 0.5 * 4) / 4
    return each, sign * each
