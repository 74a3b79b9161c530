"""Triton selection on a GPU, gradients of q, k and v against the oracle, and their repeatability."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import flags, ops, reference
from nsa.tests.test_triton_sel_parity_gpu import CONFIG, PROBLEM, SHAPES
from nsa.tests.testing import Problem, assert_outcome, expect_route, need_cuda, outcome

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def forced() -> Iterator[None]:
    """The seeds' switches: Triton selection with gradients, whatever profile and thresholds say."""
    need_cuda(flags.current().test_triton_sel, "NSA_TEST_TRITON_SEL")
    with flags.using(use_triton_sel=True, triton_sel_force=True, sel_triton_allow_grad=True):
        yield


def selected(
    function: Callable[..., Tensor], problem: Problem, indices: Tensor, **options: object
) -> Callable[..., Tensor]:
    """`function`, a selected attention, of q, k_sel and v_sel."""
    return lambda q, k_sel, v_sel: function(q, k_sel, v_sel, indices, CONFIG, cu_seqlens=problem.cu_seqlens, **options)


def inputs(problem: Problem) -> dict[str, Tensor]:
    x = problem.tensors()
    return {name: x[name] for name in ("q", "k_sel", "v_sel")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)
def test_gradients(problem: Problem, dtype: torch.dtype) -> None:
    problem = replace(problem, dtype=dtype)
    indices, x = problem.oracle_blocks(problem.tensors()), inputs(problem)
    with expect_route(device="cuda", selected="triton"):
        actual = outcome(selected(ops.selected_attention, problem, indices), x)
    wide = {name: tensor.double() for name, tensor in x.items()}
    assert_outcome(actual, outcome(selected(reference.selected_attention, problem, indices), wide), dtype)


def test_deterministic_gradients_are_bitwise_repeatable() -> None:
    problem = replace(PROBLEM, dtype=torch.bfloat16)
    indices, x = problem.oracle_blocks(problem.tensors()), inputs(problem)
    call = selected(ops.selected_attention, problem, indices, deterministic=True)
    first = outcome(call, x)
    for _ in range(9):
        again = outcome(call, x)
        assert all(torch.equal(value, again[name]) for name, value in first.items())
