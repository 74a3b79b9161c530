"""The compressed-attention kernels against the oracle: output, lse and all gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import reference
from nsa.config import NSAConfig
from nsa.kernels.ranges.attention import compressed_attention, of_compressed
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import borders_of
from nsa.tests.kernel_cases import CASES, CHUNKS, DEVICE, SMALL, chunk, judge, problems
from nsa.tests.testing import Problem, assert_close

pytestmark = pytest.mark.triton

GEOMETRIES = {
    "d-equals-l": NSAConfig(l=8, d=8, l_sel=16, n_sel=4, w=20),
    "long-overlap": NSAConfig(l=12, d=2, l_sel=8, n_sel=4, w=20),
    "span-of-one": NSAConfig(l=1, d=1, l_sel=8, n_sel=4, w=20),
    "longer-than-the-sequence": NSAConfig(l=128, d=16, l_sel=64, n_sel=4, w=20),
}


def _tensors(problem: Problem) -> dict[str, Tensor]:
    found = problem.tensors()
    k, v = (
        reference.compress(found[name], problem.config, cu_seqlens=problem.cu_seqlens_of_keys)
        for name in ("k_cmp_in", "v_cmp_in")
    )
    return {"q": found["q"], "k_cmp": k, "v_cmp": v}


def _judge(problem: Problem) -> None:
    config, scale = problem.config, problem.dk**-0.5
    tensors, given = _tensors(problem), (problem.cu_seqlens, problem.where.get("cu_seqlens_k"))
    where = of_compressed(tensors["q"], tensors["k_cmp"], config, borders_of(*given))
    judge(
        problem,
        tensors,
        lambda q, k_cmp, v_cmp: compressed_attention((q, k_cmp, v_cmp, *given, None), (config, scale, False))[0],
        lambda q, k_cmp, v_cmp: reference.compressed_attention(q, k_cmp, v_cmp, config, scale=scale, **problem.where)[
            0
        ],
    )
    lse = ranges_forward(*tensors.values(), where, scale)[1]
    wide = (x.double() for x in tensors.values())
    expected = reference.compressed_attention(*wide, config, scale=scale, **problem.where)[1]
    assert_close(lse, expected, problem.dtype, "lse")


@pytest.mark.parametrize("problem", problems())
def test_matches_the_oracle(problem: Problem) -> None:
    _judge(problem)


@pytest.mark.parametrize("config", GEOMETRIES.values(), ids=GEOMETRIES)
def test_any_geometry(config: NSAConfig) -> None:
    _judge(replace(CASES["batch"], config=config, device=DEVICE))


@pytest.mark.parametrize("room", [0, 9], ids=["full", "with-room"])
@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_of_a_prefill(name: str, room: int) -> None:
    """A cache may hold more compressed tokens than the last query sees: they are not read."""
    found, q_start = chunk(name)
    held = (reference.compress(found[f"{x}_cmp_in"], SMALL) for x in "kv")
    k_cmp, v_cmp = (torch.cat([x, torch.randn_like(x[:, :room])], 1) for x in held)
    where, ranges = {"scale": 0.2, "q_start": q_start}, of_compressed(found["q"], k_cmp, SMALL, None, q_start)
    judge(
        CASES["batch"],
        {"q": found["q"], "k_cmp": k_cmp, "v_cmp": v_cmp},
        lambda q, k_cmp, v_cmp: compressed_attention((q, k_cmp, v_cmp, None, None, q_start), (SMALL, 0.2, False))[0],
        lambda q, k_cmp, v_cmp: reference.compressed_attention(q, k_cmp, v_cmp, SMALL, **where)[0],
    )
    lse = ranges_forward(found["q"], k_cmp, v_cmp, ranges, 0.2)[1]
    wide = (x.double() for x in (found["q"], k_cmp, v_cmp))
    assert_close(lse, reference.compressed_attention(*wide, SMALL, **where)[1], torch.float32, "lse")


def test_nothing_visible_is_exactly_zero() -> None:
    tensors = _tensors(replace(CASES["one-head"], device=DEVICE))
    o, lse = ranges_forward(*tensors.values(), of_compressed(tensors["q"], tensors["k_cmp"], SMALL, None), 0.25)
    assert torch.equal(o[:, : SMALL.l - 1], torch.zeros_like(o[:, : SMALL.l - 1]))
    assert torch.isneginf(lse[:, : SMALL.l - 1]).all()
    assert torch.isfinite(lse[:, SMALL.l - 1 :]).all()
