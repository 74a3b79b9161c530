"""The sliding-window kernels against the oracle: output and all gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import reference
from nsa.kernels import combine
from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.kernels.ranges.attention import of_window, window_attention
from nsa.kernels.ranges.backward import ranges_backward
from nsa.kernels.ranges.forward import ranges_forward
from nsa.tests.kernel_cases import (
    CASES,
    CHUNKS,
    DEVICE,
    DTYPES,
    SMALL,
    by_descriptor,
    chunk,
    far_apart,
    judge,
    problems,
)
from nsa.tests.testing import Problem, assert_close

pytestmark = pytest.mark.triton


def _tensors(problem: Problem) -> dict[str, Tensor]:
    found = problem.tensors()
    return {"q": found["q"], "k": found["k_win"], "v": found["v_win"]}


def _judge(problem: Problem, window: int, scale: float) -> None:
    where = problem.cu_seqlens, problem.where.get("cu_seqlens_k"), None
    judge(
        problem,
        _tensors(problem),
        lambda q, k, v: window_attention((q, k, v, *where), (window, scale, False))[0],
        lambda q, k, v: reference.sliding_window_attention(q, k, v, window, scale=scale, **problem.where),
    )


@pytest.mark.parametrize("problem", problems())
def test_matches_the_oracle(problem: Problem) -> None:
    _judge(problem, SMALL.w, problem.dk**-0.5)


@pytest.mark.parametrize("name", ["batch", "packed", "wide-group"])
def test_loads_by_descriptor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_descriptor(monkeypatch)
    _judge(replace(CASES[name], dtype=torch.float16, device=DEVICE), SMALL.w, 0.2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["batch", "packed"])
@pytest.mark.parametrize("sign", [1, -1])
def test_logits_out_of_range(sign: int, name: str, dtype: torch.dtype) -> None:
    problem = replace(CASES[name], dtype=dtype, device=DEVICE)
    found, scale = _tensors(problem), problem.dk**-0.5
    found["q"][:, ::2, :, 0], found["k"][..., 0] = far_apart(sign, problem.dk)  # every other query
    where = of_window(found["q"], found["k"], SMALL.w, problem.cu_seqlens)
    o, lse = ranges_forward(*found.values(), where, scale)
    wide = (x.double() for x in found.values())
    expected = reference.sliding_window_attention(*wide, SMALL.w, scale=scale, cu_seqlens=problem.cu_seqlens)
    bound = 3e-5 if dtype == torch.float32 else 1e-2  # in fp32 logits of 76 are right to 1e-5
    assert (o.double() - expected).norm() <= bound * expected.norm()
    assert (lse[:, ::2] * sign > 60).all()
    assert (lse[:, 1::2].abs() < 60).all()


def test_a_token_that_reads_only_itself_gets_its_value() -> None:
    problem = replace(CASES["batch"], dtype=DTYPES[-1], device=DEVICE)
    q, k, v = _tensors(problem).values()
    o, _ = ranges_forward(q, k, v, of_window(q, k, SMALL.w, None), 0.3)
    assert torch.equal(o[:, 0], v[:, 0].repeat_interleave(problem.group_size, 1))


@pytest.mark.parametrize("window", [1, 16, 45, 10**6])
def test_exactly_so_many_keys(window: int) -> None:
    _judge(replace(CASES["batch"], device=DEVICE), window, 0.1)


@pytest.mark.parametrize("window", [7, 10**6])
@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_of_a_prefill(name: str, window: int) -> None:
    found, q_start = chunk(name)
    judge(
        CASES["batch"],
        {"q": found["q"], "k": found["k_win"], "v": found["v_win"]},
        lambda q, k, v: window_attention((q, k, v, None, None, q_start), (window, 0.2, False))[0],
        lambda q, k, v: reference.sliding_window_attention(q, k, v, window, scale=0.2, q_start=q_start),
    )


def test_queries_of_a_key_may_be_cut_into_splits() -> None:
    problem = replace(CASES["batch"], device=DEVICE)
    q, k, v = _tensors(problem).values()
    where = of_window(q, k, SMALL.w, None)
    o, lse = ranges_forward(q, k, v, where, 0.2)
    do = torch.ones_like(o)
    whole = ranges_backward(do, q, k, v, backward_preprocess(do, o, lse), where, 0.2)
    parts = ranges_backward(do, q, k, v, backward_preprocess(do, o, lse), replace(where, splits=3), 0.2)
    for one, other in zip(whole, parts, strict=True):
        assert_close(one, other.double(), torch.float32)


def test_gate_and_accumulation_of_dq() -> None:
    problem = replace(CASES["one-head"], group_size=2, device=DEVICE)
    q, k, v = _tensors(problem).values()
    gates = torch.randn(1, problem.tokens, 2, 3, device=DEVICE)
    gates[:, 3:5] = 0
    where = of_window(q, k, SMALL.w, None)
    o, lse = ranges_forward(q, k, v, where, 0.2)
    do = torch.randn_like(o)
    scaled = do * gates[..., 1, None]
    expected = ranges_backward(scaled, q, k, v, backward_preprocess(scaled, o, lse), where, 0.2)
    start = torch.randn_like(q)
    stats, _ = combine.stats(do, (o, o, o), (lse, lse, lse), gates)
    dq, dk, dv = ranges_backward(do, q, k, v, stats[1], where, 0.2, dq=start.clone())
    for actual, wanted in zip((dq - start, dk, dv), expected, strict=True):
        assert_close(actual, wanted.double(), torch.float32)


def test_strided_inputs() -> None:
    problem = replace(CASES["batch"], device=DEVICE)
    q, k, v = _tensors(problem).values()
    packed = torch.cat([q.flatten(2), k.flatten(2), v.flatten(2)], dim=2)
    parts = packed.split([q.shape[2] * q.shape[3], k.shape[2] * k.shape[3], v.shape[2] * v.shape[3]], dim=2)
    views = [part.unflatten(2, x.shape[2:]) for part, x in zip(parts, (q, k, v), strict=True)]
    assert not views[0].is_contiguous()
    where = of_window(q, k, SMALL.w, None)
    torch.testing.assert_close(ranges_forward(*views, where, 0.2), ranges_forward(q, k, v, where, 0.2))
