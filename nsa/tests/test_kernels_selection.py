"""Block selection by the kernel against the oracle's scores: near-ties may differ, nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import blocks, reference
from nsa.config import NSAConfig
from nsa.kernels.ranges.attention import of_compressed
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import borders_of
from nsa.kernels.selection import select, shares
from nsa.kernels.selection.select import select_blocks
from nsa.tests.kernel_cases import CASES, CHUNKS, DEVICE, SMALL, by_descriptor, chunk, problems
from nsa.tests.testing import Problem, assert_selection

pytestmark = pytest.mark.triton

GEOMETRIES = {
    "paper-in-small": NSAConfig(l=8, d=4, l_sel=16, n_sel=3, w=4),
    "d-does-not-divide-l_sel": NSAConfig(l=6, d=3, l_sel=8, n_sel=4, w=4),
    "nothing-forced": NSAConfig(l=8, d=4, l_sel=8, n_sel=3, w=4, init_blocks=0, local_blocks=0),
    "all-forced": NSAConfig(l=8, d=4, l_sel=8, n_sel=5, w=4, init_blocks=2, local_blocks=3),
    "one-block": NSAConfig(l=8, d=4, l_sel=8, n_sel=1, w=4, init_blocks=0, local_blocks=1),
    "span-longer-than-block": NSAConfig(l=16, d=2, l_sel=4, n_sel=6, w=4),
    "no-compressed-token": NSAConfig(l=128, d=16, l_sel=8, n_sel=4, w=4),
}


def _inputs(problem: Problem) -> tuple[Tensor, Tensor]:
    found = problem.tensors()
    return found["q"], reference.compress(found["k_cmp_in"], problem.config, cu_seqlens=problem.cu_seqlens_of_keys)


def _judge(problem: Problem) -> None:
    q, k_cmp = _inputs(problem)
    scale, borders = problem.dk**-0.5, borders_of(problem.cu_seqlens, problem.where.get("cu_seqlens_k"))
    chosen = select_blocks(q, k_cmp, problem.config, scale, borders)
    scores = reference.block_scores(q.double(), k_cmp.double(), problem.config, scale=scale, **problem.where)
    at = blocks.token_positions(*q.shape[:2], **problem.where)
    assert_selection(chosen, scores, at, problem.config, regret=1e-5)


@pytest.mark.parametrize("problem", problems())
def test_matches_the_oracle(problem: Problem) -> None:
    _judge(problem)


@pytest.mark.parametrize("config", GEOMETRIES.values(), ids=GEOMETRIES)
def test_any_geometry(config: NSAConfig) -> None:
    _judge(replace(CASES["batch"], config=config, device=DEVICE))


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_of_a_prefill(name: str) -> None:
    found, q_start = chunk(name)
    q, k_cmp = found["q"], reference.compress(found["k_cmp_in"], SMALL)
    chosen = select_blocks(q, k_cmp, SMALL, 0.2, None, q_start=q_start)
    scores = reference.block_scores(q.double(), k_cmp.double(), SMALL, scale=0.2, q_start=q_start)
    assert_selection(chosen, scores, blocks.token_positions(*q.shape[:2], q_start=q_start), SMALL, regret=1e-5)


@pytest.mark.parametrize("name", ["batch", "packed", "wide-group"])
def test_loads_by_descriptor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_descriptor(monkeypatch)
    _judge(replace(CASES[name], dtype=torch.float16, device=DEVICE))


FINE = NSAConfig(l=2, d=1, l_sel=2, n_sel=6, w=4)
"""Many small blocks, so that a few tokens fill several chunks."""


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "ROWS", (2, 2))  # one row for what is kept, one for 32 new blocks
    monkeypatch.setattr(select, "SCORES_AT_ONCE", 128)  # two queries choose together
    monkeypatch.setattr(shares, "SPLIT", 1 << 30)
    monkeypatch.setattr(select, "shares_of", shares.shares_of.__wrapped__)  # which remembers


@pytest.mark.parametrize("local", [0, 3])
def test_more_blocks_than_one_chunk(local: int, small_chunks: None) -> None:
    _judge(Problem(replace(FINE, local_blocks=local), lengths=(9, 0, 1, 100), group_size=2, device=DEVICE))


@pytest.mark.parametrize("lengths", [None, (180, 1, 9)])
def test_queries_with_fewer_candidates_apart(lengths: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "ROWS", (1, 2))  # of 100 blocks: in chunks of 32, in one of 64, in one of 32
    monkeypatch.setattr(shares, "SPLIT", 2)
    monkeypatch.setattr(select, "shares_of", shares.shares_of.__wrapped__)
    _judge(Problem(FINE, lengths=lengths, tokens=200, group_size=2, device=DEVICE))


@pytest.mark.parametrize("packed", [False, True])
def test_a_block_of_its_own_is_scored_by_the_token_that_reaches_into_it(packed: bool) -> None:
    config = NSAConfig(l=8, d=4, l_sel=8, n_sel=3, w=4, init_blocks=0, local_blocks=0)
    q, k_cmp = torch.zeros(1, 28, 1, 16, device=DEVICE), torch.zeros(1, 6, 1, 16, device=DEVICE)
    q[..., 0], k_cmp[0, 5, 0, 0] = 4.0, 10.0  # token 5 covers the positions 20 to 27, half of them in block 3
    borders = torch.tensor([0, 28], dtype=torch.int32, device=DEVICE) if packed else None
    assert select_blocks(q, k_cmp, config, 1.0, borders)[0, 27, 0].tolist() == [1, 2, 3]


def test_ties_across_chunks(small_chunks: None) -> None:
    q = torch.zeros(1, 100, 1, 16, device=DEVICE)
    k_cmp = torch.zeros(1, blocks.num_compressed(100, FINE), 1, 16, device=DEVICE)
    chosen = select_blocks(q, k_cmp, FINE, 1.0, None)
    assert chosen[0, 99, 0].tolist() == [0, 1, 2, 3, 48, 49]
    assert chosen[0, 20, 0].tolist() == [0, 1, 2, 3, 9, 10]


def test_ties_go_to_the_lower_index() -> None:
    q = torch.zeros(1, 80, 2, 16, device=DEVICE)
    k_cmp = torch.zeros(1, blocks.num_compressed(80, SMALL), 1, 16, device=DEVICE)
    config = replace(SMALL, d=8)
    k_cmp = k_cmp[:, : blocks.num_compressed(80, config)]
    chosen = select_blocks(q, k_cmp, config, 1.0, None)
    assert chosen[0, -1, 0].tolist() == [0, 1, 3, 4]  # blocks 1 and 2 score alike


def test_the_lse_of_the_forward_gives_the_same() -> None:
    problem = replace(CASES["packed"], device=DEVICE)
    q, k_cmp = _inputs(problem)
    lse = ranges_forward(q, k_cmp, k_cmp, of_compressed(q, k_cmp, SMALL, problem.cu_seqlens), 0.25)[1]
    again = select_blocks(q, k_cmp, SMALL, 0.25, problem.cu_seqlens, lse)
    assert torch.equal(again, select_blocks(q, k_cmp, SMALL, 0.25, problem.cu_seqlens))
