"""Shapes for the kernels' tests. They run in Triton's interpreter on a CPU (small, no bf16) and on a GPU alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.testing import Outcome, Problem, assert_outcome, outcome

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = (torch.float32, torch.float16, torch.bfloat16) if DEVICE == "cuda" else (torch.float32, torch.float16)
SMALL = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)

CASES = {
    "batch": Problem(SMALL, tokens=45, batch=2, kv_heads=2, group_size=2, dk=32, dv=16),
    "packed": Problem(SMALL, lengths=(0, 13, 1, 0, 30), kv_heads=2, group_size=6, dk=16, dv=16),
    "one-head": Problem(SMALL, tokens=70, dk=16, dv=32),
    "wide-group": Problem(SMALL, tokens=21, group_size=16, dk=48, dv=40),
    "group-of-12": Problem(SMALL, tokens=19, group_size=12, dk=16, dv=16),
    "one-token": Problem(SMALL, tokens=1, group_size=4, dk=16, dv=16),
}


def problems() -> list[object]:
    """Every case in every dtype."""
    return [
        pytest.param(replace(problem, dtype=dtype, device=DEVICE), id=f"{name}-{str(dtype).removeprefix('torch.')}")
        for name, problem in CASES.items()
        for dtype in DTYPES
    ]


def judge(
    problem: Problem, tensors: Mapping[str, Tensor], actual: Callable[..., Tensor], oracle: Callable[..., Tensor]
) -> Outcome:
    """Output and gradients of `actual` on `tensors` within the dtype's tolerance of the fp64 oracle's."""
    found = outcome(actual, tensors)
    assert_outcome(found, outcome(oracle, {name: x.double() for name, x in tensors.items()}), problem.dtype)
    return found
