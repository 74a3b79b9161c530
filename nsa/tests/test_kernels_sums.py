"""The choice of blocks in two kernels, of which a CPU takes the first one's twin: near-ties may differ from the oracle,
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nsa import blocks, reference
from nsa.config import NSAConfig
from nsa.kernels.common import hopper
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import of_compressed
from nsa.kernels.selection import select, shares, sums
from nsa.kernels.tuning.lookup import Tile
from nsa.tests import sums_twin
from nsa.tests.kernel_cases import DEVICE
from nsa.tests.testing import Problem, assert_selection

pytestmark = pytest.mark.triton

SMALL = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
PAPER = NSAConfig(n_sel=8)
CASES = {
    "batch": Problem(SMALL, tokens=45, batch=2, kv_heads=2, group_size=2, dk=64, dv=16),
    "group-of-16": Problem(SMALL, tokens=53, kv_heads=2, group_size=16, dk=64, dv=16),
    "group-of-1": Problem(SMALL, tokens=97, kv_heads=3, dk=64, dv=16),
    "group-of-5": Problem(SMALL, tokens=33, kv_heads=2, group_size=5, dk=64, dv=16),
    "group-of-32": Problem(SMALL, tokens=21, kv_heads=2, group_size=32, dk=64, dv=16),
    "wide": Problem(SMALL, tokens=50, kv_heads=2, group_size=4, dk=128, dv=16),
    "wider": Problem(SMALL, tokens=41, batch=2, group_size=4, dk=192, dv=16),
    "one-compressed-token": Problem(SMALL, tokens=9, group_size=4, dk=64, dv=16),
    "nothing-forced": Problem(replace(SMALL, init_blocks=0, local_blocks=0), tokens=90, dk=64, dv=16),
    "one-local": Problem(replace(SMALL, local_blocks=1), tokens=90, group_size=2, dk=64, dv=16),
    "spans-apart": Problem(replace(SMALL, l=4), tokens=90, group_size=2, dk=64, dv=16),
    "spans-apart-nothing-forced": Problem(
        replace(SMALL, l=4, init_blocks=0, local_blocks=0), tokens=90, group_size=2, dk=64, dv=16
    ),
    "blocks-of-eight": Problem(replace(SMALL, l_sel=8), tokens=90, group_size=2, dk=64, dv=16),
}
if DEVICE == "cuda":  # several of its tiles, and chunks
    CASES |= {
        "long": Problem(PAPER, tokens=3001, kv_heads=2, group_size=16, dk=128, dv=128),
        "long-batch": Problem(PAPER, tokens=2111, batch=2, kv_heads=2, group_size=4, dk=128, dv=128),
        "long-wide": Problem(PAPER, tokens=2500, kv_heads=2, group_size=16, dk=192, dv=128),
        "long-narrow": Problem(replace(PAPER, l_sel=128), tokens=2500, kv_heads=3, group_size=6, dk=64, dv=64),
    }
HALVES = (torch.float16, torch.bfloat16) if DEVICE == "cuda" else (torch.float16,)


@pytest.fixture(autouse=True)
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """First query and number of those whose numbers a launch made. A CPU takes small tiles."""
    if DEVICE == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip(f"sm_90 is needed, this is {torch.cuda.get_device_name()}")
    if DEVICE == "cuda" and hopper.lacking():
        pytest.skip(str(hopper.lacking()))
    launch = sums_twin.launch if DEVICE == "cpu" else sums._launcher()
    found: list[tuple[int, int]] = []

    def noting(*given: Any) -> None:
        found.append(given[-2:])
        launch(*given)

    if DEVICE == "cpu":
        monkeypatch.setattr(sums, "target_of", lambda device: "sm_90")
        monkeypatch.setattr(sums, "lacking", lambda: None)
        monkeypatch.setattr(sums, "TILES", dict.fromkeys(sums.TILES, Tile(64, 16, 1, 2)))
        monkeypatch.setattr(sums_twin, "TILES", sums.TILES)
        hopper.unopposed.cache_clear()
    monkeypatch.setattr(sums, "_launcher", lambda: noting)
    yield found
    hopper.unopposed.cache_clear()


def _inputs(problem: Problem) -> tuple[Tensor, Tensor]:
    found = problem.tensors()
    return found["q"], reference.compress(found["k_cmp_in"], problem.config)


def _judge(problem: Problem, q_start: Tensor | None = None, tokens: int | None = None) -> Tensor:
    q, k_cmp = _inputs(problem)
    q = q[:, :tokens].contiguous()
    where = {"scale": problem.dk**-0.5, "q_start": q_start}
    chosen = select.select_blocks(q, k_cmp, problem.config, cu_seqlens=None, **where)
    scores = reference.block_scores(q.double(), k_cmp.double(), problem.config, **where)
    at = blocks.token_positions(*q.shape[:2], q_start=q_start)
    assert_selection(chosen, scores, at, problem.config, regret=1e-5)
    return chosen


def _halves(names: Iterable[str]) -> list[object]:
    return [
        pytest.param(replace(CASES[name], dtype=dtype, device=DEVICE), id=f"{name}-{str(dtype).removeprefix('torch.')}")
        for name in names
        for dtype in HALVES
    ]


@pytest.mark.parametrize("problem", _halves(CASES))
def test_matches_the_oracle(problem: Problem, launches: list[tuple[int, int]]) -> None:
    _judge(problem)
    assert launches == [(0, problem.tokens)]


@pytest.mark.parametrize("problem", _halves(["group-of-5", "one-local"]))
def test_two_numbers_make_each_score(problem: Problem) -> None:
    """Blocks that are chosen would tell nothing of numbers that are all wrong in the same way."""
    q, k_cmp = _inputs(problem)
    config, heads, scale = problem.config, k_cmp.shape[2], problem.dk**-0.5
    where = of_compressed(q, k_cmp, config, None)
    lse = ranges_forward(q, k_cmp, k_cmp, where, scale)[1]
    (share,) = shares.shares_of(problem.tokens, k_cmp.shape[1], config, 1, False)
    length = shares.row_length(share, k_cmp.shape[1], config, True)
    rows = torch.zeros(problem.batch, heads, 128 + problem.tokens, length, device=DEVICE)
    sums._launcher()(q, k_cmp, config, scale, where, lse, rows, share.before, 0, problem.tokens)
    found = rows[..., share.before :].unflatten(-1, (-1, 2)).double().sum(-1)
    expected = reference.block_scores(q.double(), k_cmp.double(), config, scale=scale)
    for b, queries in enumerate(expected):
        for t, scores in enumerate(queries):
            free = max(0, t // config.l_sel + 1 - config.local_blocks)  # the others' last token may not be seen
            torch.testing.assert_close(found[b, :, t, :free], scores[:, :free], rtol=2e-3, atol=2e-3)


MANY_BLOCKS = NSAConfig(l=2, d=1, l_sel=2, n_sel=6, w=4)
"""So that a few tokens fill several chunks of candidates."""


@pytest.mark.parametrize("problem", _halves(["wide", "long-wide"] if DEVICE == "cuda" else ["one-compressed-token"]))
def test_chunks_and_shares_give_the_same(
    problem: Problem, launches: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = replace(problem, config=MANY_BLOCKS, tokens=100)
    whole = _judge(problem)
    launches.clear()
    monkeypatch.setattr(shares, "ROWS", (1, 2))
    monkeypatch.setattr(shares, "SPLIT", 2)
    monkeypatch.setattr(sums, "shares_of", shares.shares_of.__wrapped__)  # which remembers
    monkeypatch.setattr(sums, "CHUNK_BYTES", 2**14)
    assert torch.equal(_judge(problem), whole)
    assert len(launches) > 3
    assert sum(count for _, count in launches) == 100


def test_more_blocks_than_one_chunk_of_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "ROWS", (2, 2))  # one row for what is kept, one for 32 new blocks
    monkeypatch.setattr(shares, "SPLIT", 1 << 30)
    monkeypatch.setattr(sums, "shares_of", shares.shares_of.__wrapped__)
    problem = replace(CASES["one-compressed-token"], config=MANY_BLOCKS, tokens=80)
    _judge(replace(problem, dtype=torch.float16, device=DEVICE))


@pytest.mark.parametrize("starts", [(30, 30), (0, 27)])
def test_chunks_of_a_prefill(starts: tuple[int, int], launches: list[tuple[int, int]]) -> None:
    problem = replace(CASES["batch"], dtype=torch.float16, device=DEVICE)
    _judge(problem, torch.tensor(starts, device=DEVICE), tokens=15)
    assert launches == [(0, 15)]


def test_ties_go_to_the_lower_index(launches: list[tuple[int, int]]) -> None:
    config = replace(SMALL, d=8)
    q = torch.zeros(1, 80, 2, 64, device=DEVICE, dtype=torch.float16)
    k_cmp = torch.zeros(1, blocks.num_compressed(80, config), 1, 64, device=DEVICE, dtype=torch.float16)
    assert select.select_blocks(q, k_cmp, config, 1.0, None)[0, -1, 0].tolist() == [0, 1, 3, 4]
    assert launches


@pytest.mark.parametrize("wrong", ["packed", "fp32", "width"])
def test_what_it_does_not_take_goes_to_the_one_kernel(wrong: str, launches: list[tuple[int, int]]) -> None:
    problem = replace(CASES["batch"], batch=1, dtype=torch.float16, device=DEVICE)
    if wrong == "fp32":
        problem = replace(problem, dtype=torch.float32)
    if wrong == "width":
        problem = replace(problem, dk=48)
    q, k_cmp = _inputs(problem)
    borders = torch.tensor([0, problem.tokens], dtype=torch.int32, device=DEVICE) if wrong == "packed" else None
    select.select_blocks(q, k_cmp, problem.config, 0.1, borders)
    assert not launches


FITTING = {
    "target": "sm_90", "dtype": torch.bfloat16, "dk": 128, "group": 16, "config": NSAConfig(), "packed": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "sm_100"}, "written for sm_90, not sm_100"),
        ({"dtype": torch.float32}, "in half precision, not float32"),
        ({"dk": 96}, "head dimension 96 is not among 64, 128, 192"),
        ({"group": 33}, "the group size is 33, more than 32"),
        ({"config": NSAConfig(l=1, d=1)}, "l=1, d=1 and l_sel=64"),
        ({"packed": True}, "sequences are packed"),
    ],
)
def test_what_takes_one_kernel_has_a_reason(
    change: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(sums, "lacking", lambda: None)
    assert sums.against(**FITTING) is None  # type: ignore[arg-type]
    assert words in (sums.against(**{**FITTING, **change}) or "")  # type: ignore[arg-type]
