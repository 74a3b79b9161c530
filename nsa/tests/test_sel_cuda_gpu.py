"""The experimental CUDA selection against the oracle, where the build switch is on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from nsa import NSAConfig, flags, ops, reference, routing
from nsa.tests.testing import Problem, assert_close, expect_route, need_cuda

pytestmark = pytest.mark.cuda
CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
PROBLEM = Problem(CONFIG, tokens=150, batch=2, kv_heads=2, group_size=3, dk=48, dv=80, device="cuda")
SHAPES = {"batch": PROBLEM, "packed": replace(PROBLEM, batch=1, lengths=(0, 33, 1, 150, 7))}


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    need_cuda(None, "")
    if not flags.current().build_cuda:
        pytest.skip("the CUDA selection is not built: NSA_BUILD_CUDA=1 compiles it")
    yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)
def test_forward(problem: Problem, dtype: torch.dtype) -> None:
    x = replace(problem, dtype=dtype).tensors()
    indices = problem.oracle_blocks(x)
    indices[:, 5] = -1
    q, k, v = x["q"], x["k_sel"], x["v_sel"]
    with expect_route(device="cuda", selected="cuda"):
        found = ops.selected_attention(q, k, v, indices, CONFIG, cu_seqlens=problem.cu_seqlens, backend="cuda")
    expected = reference.selected_attention(
        q.double(), k.double(), v.double(), indices, CONFIG, cu_seqlens=problem.cu_seqlens
    )
    assert_close(found, expected, dtype)
    assert (found[:, 5] == 0).all()


def test_gradients_are_declined() -> None:
    x = PROBLEM.tensors()
    indices = PROBLEM.oracle_blocks(x)
    with pytest.raises(routing.RoutingError, match="the CUDA selection has no backward"):
        ops.selected_attention(
            x["q"].requires_grad_(), x["k_sel"], x["v_sel"], indices, CONFIG, backend="cuda", strict=True
        )
