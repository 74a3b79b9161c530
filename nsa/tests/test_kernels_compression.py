"""The compression kernels against the oracle: means, turned or not, weighted sums, the MLP, and all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import reference
from nsa.kernels.compression import mean
from nsa.testing import Problem
from nsa.tests.kernel_cases import CASES, DEVICE, SMALL, judge, problems

pytestmark = pytest.mark.triton


def _joined(branches: Iterable[Tensor]) -> Tensor:
    """Keys and values side by side, as the one output that is judged."""
    return torch.cat(tuple(branches), -1)


class _Means(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v, problem, rope):  # type: ignore[no-untyped-def]
        ctx.asked = k.shape[1], problem.config, problem.cu_seqlens
        ctx.rope = rope
        return mean.forward(k, v, problem.config, problem.cu_seqlens, rope=rope)

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[no-untyped-def]
        return *mean.backward(*grads, *ctx.asked, rope=ctx.rope), None, None


def _oracle(problem: Problem, rope: float | None) -> Callable[..., Tensor]:
    def call(k: Tensor, v: Tensor) -> Tensor:
        k_cmp, v_cmp = (reference.compress(x, problem.config, cu_seqlens=problem.cu_seqlens) for x in (k, v))
        if rope is not None:
            counts = [reference.compressed_count(n, problem.config) for n in problem.lengths or (problem.tokens,)]
            at = torch.tensor([[i * problem.config.d for count in counts for i in range(count)]])
            k_cmp = reference.rotate(k_cmp, at, rope)
        return _joined((k_cmp, v_cmp))

    return call


def _judge_mean(problem: Problem, rope: float | None = None) -> None:
    found = problem.tensors()
    judge(
        problem,
        {"k": found["k_cmp_in"], "v": found["v_cmp_in"]},
        lambda k, v: _joined(_Means.apply(k, v, problem, rope)),
        _oracle(problem, rope),
    )


@pytest.mark.parametrize("problem", problems())
def test_means(problem: Problem) -> None:
    _judge_mean(problem)


@pytest.mark.parametrize("problem", problems())
def test_means_of_keys_are_turned(problem: Problem) -> None:
    _judge_mean(problem, rope=50.0)


@pytest.mark.parametrize("dk", [2, 6, 64, 80, 96, 128, 192, 256])
def test_pairs_lie_half_a_head_apart(dk: int) -> None:
    """Of 192 dimensions, which two tiles of 128 and 64 hold elsewhere, they would cross the tiles."""
    _judge_mean(Problem(SMALL, lengths=(19, 3, 23), kv_heads=2, dk=dk, dv=16, device=DEVICE), rope=10.0)


def test_mean_of_spans_longer_than_one_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mean, "LOADED", 256)  # of a few rows
    _judge_mean(replace(CASES["packed"], device=DEVICE))
    _judge_mean(replace(CASES["packed"], device=DEVICE), rope=10.0)
