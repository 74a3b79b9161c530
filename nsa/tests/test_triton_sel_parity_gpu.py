"""Triton selection on a GPU, forward, against the oracle: it must really be Triton that ran, on that device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from nsa import NSAConfig, flags, ops, reference
from nsa.tests.testing import Problem, assert_close, expect_route, need_cuda

pytestmark = pytest.mark.cuda
CONFIG = NSAConfig(l=32, d=16, l_sel=64, n_sel=4, w=64)
PROBLEM = Problem(CONFIG, tokens=500, batch=2, kv_heads=2, group_size=4, dk=64, dv=64, device="cuda")
SHAPES = {
    "batch": PROBLEM,
    "packed": replace(PROBLEM, batch=1, lengths=(0, 96, 1, 330, 7)),
    "dk 192, dv 128": replace(PROBLEM, batch=1, group_size=16, dk=192, dv=128),
    "group of 6": replace(PROBLEM, batch=1, group_size=6, dk=32, dv=48),
}


@pytest.fixture(autouse=True)
def forced() -> Iterator[None]:
    """The seeds' switches: Triton selection, whatever profile and thresholds say."""
    need_cuda(flags.current().test_triton_sel, "NSA_TEST_TRITON_SEL")
    with flags.using(use_triton_sel=True, triton_sel_force=True):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)
def test_forward(problem: Problem, dtype: torch.dtype) -> None:
    x = replace(problem, dtype=dtype).tensors()
    indices = problem.oracle_blocks(x)
    where = {"cu_seqlens": problem.cu_seqlens}
    q, k, v = x["q"], x["k_sel"], x["v_sel"]
    with expect_route(device="cuda", selected="triton"):
        found = ops.selected_attention(q, k, v, indices, CONFIG, **where)
    expected = reference.selected_attention(q.double(), k.double(), v.double(), indices, CONFIG, **where)
    assert_close(found, expected, dtype)


def test_rows_without_blocks_are_zero() -> None:
    x = PROBLEM.tensors()
    indices = PROBLEM.oracle_blocks(x)
    indices[:, 7::50] = -1
    with expect_route(device="cuda", selected="triton"):
        found = ops.selected_attention(x["q"], x["k_sel"], x["v_sel"], indices, CONFIG)
    assert (found[:, 7::50] == 0).all() and found.isfinite().all()
