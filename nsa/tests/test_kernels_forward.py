"""Attention to key ranges by warps that share keys, of which a CPU takes the twin, and what that leaves to be computed
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import blocks, explain_routing, reference
from nsa.config import NSAConfig
from nsa.kernels import ways
from nsa.kernels.common import hopper
from nsa.kernels.ranges import forward
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import KeyRanges, of_compressed, of_window
from nsa.kernels.selection import sums
from nsa.kernels.tuning.lookup import Tile
from nsa.routing import Request
from nsa.tests import forward_twin
from nsa.tests.kernel_cases import DEVICE, by_descriptor, far_apart
from nsa.tests.testing import Problem, assert_close

pytestmark = pytest.mark.triton

SMALL = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=44)
ON_GPU = DEVICE == "cuda"
DTYPE = torch.bfloat16 if ON_GPU else torch.float16
"""The interpreter has no bf16."""

MANY = 200 if ON_GPU else 56
"""Tokens, of which some tiles of keys need no mask."""

CASES = {
    "batch": Problem(SMALL, tokens=61, batch=2, kv_heads=2, group_size=4, dk=64, dv=64),
    "group-of-1": Problem(SMALL, tokens=147, kv_heads=3, dk=64, dv=64),
    "group-of-5": Problem(SMALL, tokens=33, batch=2, kv_heads=2, group_size=5, dk=64, dv=64),
    "group-of-16": Problem(SMALL, tokens=53, kv_heads=2, group_size=16, dk=64, dv=64),
    "wide": Problem(SMALL, tokens=50, kv_heads=2, group_size=4, dk=128, dv=128),
    "wider": Problem(SMALL, tokens=41, batch=2, group_size=8, dk=192, dv=128),
    "packed": Problem(SMALL, lengths=(0, 23, 1, 0, 60), kv_heads=2, group_size=6, dk=64, dv=64),
}
NOT_ALL_AGAIN = {"batch", "group-of-5", "group-of-16", "wide", "wider", "packed"}
"""Where some tile of keys needs no mask for all rows that share it."""
if ON_GPU:  # several turns of each program, and several tiles without a mask
    PAPER = NSAConfig()
    CASES |= {
        "long": Problem(PAPER, tokens=4501, kv_heads=4, group_size=16, dk=128, dv=128),
        "long-batch": Problem(PAPER, tokens=2111, batch=3, kv_heads=2, group_size=4, dk=128, dv=128),
        "long-wide": Problem(PAPER, tokens=3001, kv_heads=2, group_size=16, dk=192, dv=128),
        "long-narrow": Problem(PAPER, tokens=2500, kv_heads=3, group_size=6, dk=64, dv=64),
        "long-group-of-64": Problem(PAPER, tokens=1500, group_size=64, dk=128, dv=128),
        "long-packed": Problem(PAPER, lengths=(1700, 0, 45, 900), kv_heads=2, group_size=8, dk=128, dv=128),
    }
    NOT_ALL_AGAIN = {name for name in CASES if name.startswith("long")}


@pytest.fixture(autouse=True)
def again(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """What each launch left to be computed again, so that none is missed. A CPU takes small tiles."""
    if ON_GPU and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip(f"sm_90 is needed, this is {torch.cuda.get_device_name()}")
    if ON_GPU and hopper.lacking():
        pytest.skip(str(hopper.lacking()))
    launch = forward._launcher() if ON_GPU else forward_twin.launch
    found: list[Tensor] = []

    def noting(*given: object) -> None:
        (*others, left) = given
        assert isinstance(left, Tensor)
        launch(*others, left.fill_(7))
        found.append(left)

    monkeypatch.setattr(forward, "_launcher", lambda: noting)
    monkeypatch.setattr(forward, "FEWEST_ROWS", 1)
    monkeypatch.setattr(forward, "FEWEST_KEYS", 1)
    if not ON_GPU:
        by_descriptor(monkeypatch)
        monkeypatch.setattr(forward, "target_of", lambda device: "sm_90")
        monkeypatch.setattr(forward, "lacking", lambda: None)
        monkeypatch.setattr(forward, "DTYPE", torch.float16)
        monkeypatch.setattr(forward, "TILES", dict.fromkeys(forward.TILES, Tile(32, 8, 1, 2)))
        monkeypatch.setattr(forward_twin, "TILES", forward.TILES)
        hopper.unopposed.cache_clear()
    yield found
    hopper.unopposed.cache_clear()


def _window(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    found = problem.tensors()
    return found["q"], found["k_win"], found["v_win"]


def _compressed(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    found = problem.tensors()
    k, v = (
        reference.compress(found[name], problem.config, cu_seqlens=problem.cu_seqlens)
        for name in ("k_cmp_in", "v_cmp_in")
    )
    return found["q"], k, v


def _judge(problem: Problem, tensors: tuple[Tensor, Tensor, Tensor], where: KeyRanges, scale: float) -> Tensor:
    """o and lse against those of all logits of one KV head after the other in fp64; returns o."""
    q, k, v = tensors
    o, lse = ranges_forward(q, k, v, where, scale)
    o_s = torch.arange(k.shape[1], device=q.device)
    lo, hi = (x.expand(q.shape[0], -1) for x in (where.lo, where.hi))
    read = (o_s >= lo[..., None]) & (o_s < hi[..., None])  # [B,T,S]
    for head in range(q.shape[2]):
        of = head // problem.group_size
        logits = torch.einsum("btd,bsd->bts", q[:, :, head].double(), k[:, :, of].double()) * scale
        logits = logits.masked_fill(~read, float("-inf"))
        p = logits.softmax(-1).nan_to_num(0.0)
        assert_close(o[:, :, head], p @ v[:, :, of].double(), problem.dtype)
        torch.testing.assert_close(lse[:, :, head].double(), logits.logsumexp(-1), rtol=2e-3, atol=2e-3)
    return o


def _problem(name: str) -> Problem:
    return replace(CASES[name], dtype=DTYPE, device=DEVICE)


@pytest.mark.parametrize("name", CASES)
def test_the_window_matches_the_oracle(name: str, again: list[Tensor]) -> None:
    problem = _problem(name)
    q, k, v = _window(problem)
    _judge(problem, (q, k, v), of_window(q, k, problem.config.w, problem.cu_seqlens), problem.dk**-0.5)
    (left,) = again
    assert set(left.unique().tolist()) <= {0, 1}
    assert (left == 0).any() == (name in NOT_ALL_AGAIN)


@pytest.mark.parametrize("name", CASES)
def test_compressed_attention_matches_the_oracle(name: str, again: list[Tensor]) -> None:
    problem = _problem(name)
    q, k, v = _compressed(problem)
    _judge(problem, (q, k, v), of_compressed(q, k, problem.config, problem.cu_seqlens), problem.dk**-0.5)
    assert len(again) == 1


@pytest.mark.parametrize("name", ["group-of-16", "wider"])
def test_what_is_left_is_what_has_few_keys(name: str, again: list[Tensor]) -> None:
    """The rest is not computed twice, and nothing is left out."""
    problem = replace(_problem(name), tokens=4000 if ON_GPU else 61)
    q, k, _ = _window(problem)
    where = of_window(q, k, 600 if ON_GPU else 30, None)
    ranges_forward(q, k, k[..., : problem.dv].contiguous(), where, 0.1)
    part = forward.TILES[problem.dk].BM // problem.group_size
    turn = part * forward.SHARERS
    tile, edge = forward.TILES[problem.dk].BN, blocks.token_positions(1, problem.tokens)[0]
    expected = [
        int(edge[min(i // forward.SHARERS * turn, problem.tokens - 1)]) + 1 < tile for i in range(again[0].shape[-1])
    ]
    for left in again[0].flatten(0, 1):
        assert left.tolist() == list(map(int, expected))


@pytest.mark.parametrize("sign", [1, -1])
def test_logits_out_of_range_are_computed_again(sign: int, again: list[Tensor]) -> None:
    problem = replace(_problem("group-of-16"), tokens=MANY)
    at = MANY // 2 + 1
    q, k, v = _window(problem)
    q[:, at, :, 0], k[..., 0] = far_apart(sign, problem.dk)
    o = _judge(problem, (q, k, v), of_window(q, k, 2 * forward.TILES[problem.dk].BN, None), problem.dk**-0.5)
    part = forward.TILES[problem.dk].BM // problem.group_size
    assert again[0][..., at // part].all()
    assert not again[0][..., at // part + 1].any()
    assert o.isfinite().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_no_query_reads_are_left_out(value: float, again: list[Tensor]) -> None:
    """TMA brings them, and p = 0 does not keep them out."""
    problem = replace(_problem("group-of-16"), tokens=MANY)
    q, k, v = _window(problem)
    where = of_window(q, k, 2 * forward.TILES[problem.dk].BN, None)
    expected = ranges_forward(q, k, v, where, 0.1)[0]
    late = MANY * 3 // 4 // 8 * 8  # within a tile of tokens what some read may be all of theirs
    v[:, late:] = value
    found = ranges_forward(q, k, v, where, 0.1)[0]
    torch.testing.assert_close(found[:, :late], expected[:, :late], rtol=1e-2, atol=2e-3)
    assert again[1].sum() > again[0].sum()


def test_a_token_that_reads_only_itself_gets_its_value() -> None:
    problem = _problem("batch")
    q, k, v = _window(problem)
    o, _ = ranges_forward(q, k, v, of_window(q, k, SMALL.w, None), 0.3)
    assert torch.equal(o[:, 0], v[:, 0].repeat_interleave(problem.group_size, 1))


def test_bits_repeat() -> None:
    problem = _problem("long" if ON_GPU else "batch")
    q, k, v = _window(problem)
    where = of_window(q, k, problem.config.w, None)
    first, second = (ranges_forward(q, k, v, where, 0.1) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


@pytest.mark.parametrize("wrong", ["fp32", "width", "values", "rows", "keys", "strides"])
def test_what_it_does_not_take_goes_to_the_one_kernel(
    wrong: str, again: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = {"fp32": {"dtype": torch.float32}, "width": {"dk": 32, "dv": 32}, "values": {"dv": 32}}
    problem = replace(_problem("batch"), **change.get(wrong, {}))
    q, k, v = _window(problem)
    if wrong in ("rows", "keys"):
        monkeypatch.setattr(forward, f"FEWEST_{wrong.upper()}", 10**6)
    if wrong == "strides":
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
    _judge(problem, (q, k, v), of_window(q, k, SMALL.w, None), 0.2)
    assert not again


FITTING = {
    "target": "sm_90", "dtype": torch.bfloat16, "dk": 192, "dv": 128, "group": 16, "rows": 1 << 18, "keys": 320,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "sm_89"}, "written for sm_90, not sm_89"),
        ({"dtype": torch.float16}, "in bf16, not float16"),
        ({"dk": 96}, "head dimensions 96 and 128"),
        ({"dv": 64}, "head dimensions 192 and 64"),
        ({"group": 65}, "the group size is 65, more than a tile's"),
        ({"rows": 1000}, "1000 rows of queries are fewer than 262144"),
        ({"keys": 319}, "319 keys are fewer than 320"),
    ],
)
def test_what_it_does_not_take_has_a_reason(
    change: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(forward, "lacking", lambda: None)
    assert forward.against(**FITTING) is None  # type: ignore[arg-type]
    assert words in (forward.against(**{**FITTING, **change}) or "")  # type: ignore[arg-type]


def test_routing_explains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(ways, "_target", lambda request: "sm_90")
    for module in (forward, sums):
        monkeypatch.setattr(module, "lacking", lambda: None)
    monkeypatch.setattr(forward, "DTYPE", torch.float16)

    def said(operation: str, tokens: int) -> str:
        shape = (2, tokens, tokens, 64, 4, 128, 128)
        return ways.forward(Request(operation, torch.device("cpu"), torch.float16, *shape, NSAConfig()))

    few = "each warp its own keys: 255 keys are fewer than 320"
    assert said("attention", 4096) == f"window: warps that share keys; compressed: {few}; select: two kernels"
    assert said("window", 4096) == said("compressed", 4096) == "warps that share keys"
    assert said("window", 1024) == "each warp its own keys: 131072 rows of queries are fewer than 262144"
    assert said("selected", 4096) == ""
    how = {"heads": 64, "kv_heads": 4, "dk": 128, "batch": 2, "device": DEVICE, "dtype": torch.float16}
    found = explain_routing(tokens=4096, **how, backend="triton")
    assert found.decisions["attention"].forward == said("attention", 4096)
    assert f"forward: {few}" in str(found)
    assert found.decisions["select"].forward == "two kernels"
