"""The PyTorch backend on a GPU: the oracle's values, repeatable gradients, causality."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from nsa import NSAConfig, nsa_attention
from nsa.tests.testing import Problem, assert_parity, expect_route, need_cuda, outcome

pytestmark = pytest.mark.cuda
CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
PROBLEM = Problem(CONFIG, tokens=200, batch=2, kv_heads=2, group_size=4, dk=64, dv=32, device="cuda")
SHAPES = {"batch": PROBLEM, "packed": replace(PROBLEM, batch=1, lengths=(0, 33, 1, 150, 7))}


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    need_cuda(None, "")
    yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)
def test_parity(problem: Problem, dtype: torch.dtype) -> None:
    with expect_route(device="cuda", compressed="torch", selected="torch", window="torch"):
        assert_parity(replace(problem, dtype=dtype), backend="torch")


def test_gradients_are_repeatable() -> None:
    x = PROBLEM.tensors()
    call = PROBLEM.attention(nsa_attention, backend="torch", deterministic=True)
    first, second = outcome(call, x), outcome(call, x)
    assert all(torch.equal(value, second[name]) for name, value in first.items())
