"""FA-2 on a GPU against the oracle: window and compressed, dense and packed, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from nsa import NSAConfig, flags
from nsa.tests.testing import Problem, assert_parity, expect_route, need_cuda

pytestmark = pytest.mark.cuda
CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
PROBLEM = Problem(CONFIG, tokens=200, batch=2, kv_heads=2, group_size=4, dk=64, dv=64, device="cuda")
BACKEND = {"window": "fa2", "compressed": "fa2", "selected": "torch"}  # Triton's would be compiled for each process
SHAPES = {"batch": PROBLEM, "packed": replace(PROBLEM, batch=1, lengths=(0, 33, 1, 150, 7))}


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    need_cuda(flags.current().test_fa2, "NSA_TEST_FA2")
    yield


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)
def test_fa2_parity(problem: Problem, dtype: torch.dtype) -> None:
    with expect_route(device="cuda", window="fa2", compressed="fa2"):
        assert_parity(replace(problem, dtype=dtype), backend=BACKEND)


def test_flags_choose_it() -> None:
    with flags.using(use_fa2=True, fa2_force=True), expect_route(device="cuda", window="fa2", compressed="fa2"):
        assert_parity(replace(PROBLEM, dtype=torch.bfloat16), backend={"selected": "torch"})
