"""Heads that lie more than 2^31 elements apart: every kernel reaches them.

The tensors are views of one sparse file (on a GPU, of memory that is never touched), of which only their own rows are
ever written. Where an offset is kept in 32 bits it wraps, to zeros that lie before the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nsa import NSACache, nsa_attention, ops, reference
from nsa.kernels.selected import tile_scheduler
from nsa.tests.kernel_cases import CASES, DEVICE, SMALL
from nsa.tests.test_kernels_selected import SCHEDULES
from nsa.tests.testing import Outcome, assert_close, assert_outcome, outcome

pytestmark = pytest.mark.triton

APART = 2**30 + 64
"""Elements from one head to the next: 32 bits hold the distance of two, but not of three."""

BEFORE = 2**31
"""Elements before the first tensor: as far as an offset that wraps in 32 bits leads."""

MARGIN = 2**20
"""Elements for the tensors' own rows."""

PROBLEM = replace(CASES["batch"], batch=1, tokens=21, kv_heads=3, dtype=torch.float16, device=DEVICE)
"""For the kernels of a case that other tests have too: a GPU finds most of them compiled."""


class Far:
    """Tensors in memory that is almost all untouched, with their heads APART."""

    def __init__(self, memory: Tensor) -> None:
        self.memory, self.used = memory, BEFORE

    def __call__(self, x: Tensor) -> Tensor:
        """x [B,T,H,D] there, in the order [H,B,T,D]."""
        batch, tokens, _, size = x.shape
        strides = tokens * size, size, APART, 1
        there = x.new_empty(0).set_(self.memory.untyped_storage(), self.used, x.shape, strides)
        self.used += -(-batch * tokens * size // 64) * 64
        return there.copy_(x)

    def leaf(self, x: Tensor) -> Tensor:
        """The same, and gradients flow back to x."""
        return _Moved.apply(x, self)


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, far: Far) -> Tensor:
        return far(x.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    heads = PROBLEM.kv_heads * PROBLEM.group_size
    size = BEFORE + heads * APART + MARGIN
    if DEVICE == "cuda":
        free = torch.cuda.mem_get_info()[0]
        if free < 2 * size:
            pytest.skip(f"{2 * size >> 30} GiB of address space are needed on the GPU, which has {free >> 30} free")
        yield Far(torch.empty(size, dtype=torch.float16, device=DEVICE))
        torch.cuda.empty_cache()
    else:
        yield Far(torch.from_file(str(tmp_path / "sparse"), shared=True, size=size, dtype=torch.float16))


def _judge(far: Far, function: Callable[..., Tensor], oracle: Callable[..., Tensor], *names: str) -> None:
    """`function` of far tensors against `oracle` of the same numbers, outputs and gradients."""
    tensors = {name: x for name, x in PROBLEM.tensors().items() if not names or name in names}
    found: Outcome = outcome(lambda **x: function(**{name: far.leaf(value) for name, value in x.items()}), tensors)
    wide = {name: x.double() for name, x in tensors.items()}
    assert_outcome(found, outcome(oracle, wide), torch.float16)


@pytest.mark.parametrize("deterministic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_whole_operation(far: Far, deterministic: bool) -> None:
    blocks = PROBLEM.oracle_blocks(PROBLEM.tensors())
    how = {"backend": "triton", "strict": True, "deterministic": deterministic}
    _judge(
        far,
        PROBLEM.attention(nsa_attention, block_indices=blocks, **how),
        PROBLEM.attention(reference.nsa_attention, block_indices=blocks),
    )


def test_selection(far: Far) -> None:
    x = replace(PROBLEM, tokens=120).tensors()  # enough for a choice
    k_cmp = reference.compress(x["k_cmp_in"].double(), SMALL)
    expected = reference.select_blocks(x["q"].double(), k_cmp.half().double(), SMALL)
    found = ops.select_blocks(far(x["q"]), far(k_cmp.half()), SMALL, backend="triton", strict=True)
    assert torch.equal(found.cpu(), expected.cpu().int())


@pytest.mark.parametrize(
    "name", ["gather", *(pytest.param(name, marks=pytest.mark.slow) for name in ("token", "tile", "mixed"))]
)
def test_selected_attention(far: Far, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_scheduler, "choose_schedule", lambda *args: SCHEDULES[name])
    blocks = PROBLEM.oracle_blocks(PROBLEM.tensors()).int()
    _judge(
        far,
        lambda q, k_sel, v_sel: ops.selected_attention(q, k_sel, v_sel, far(blocks), SMALL, backend="triton"),
        lambda q, k_sel, v_sel: reference.selected_attention(q, k_sel, v_sel, blocks, SMALL),
        "q", "k_sel", "v_sel",
    )  # fmt: skip


def test_a_decode_step(far: Far) -> None:
    x = {name: value[:, :1] for name, value in PROBLEM.tensors().items()}
    where = {"dtype": torch.float16, "device": DEVICE}
    cache = NSACache(SMALL, 1, PROBLEM.kv_heads, PROBLEM.dk, PROBLEM.dv, **where)
    keys, values = ([x[f"{kind}_{branch}"] for branch in ("cmp_in", "sel", "win")] for kind in "kv")
    found = ops.nsa_decode(
        far(x["q"]), tuple(map(far, keys)), tuple(map(far, values)), far(x["gates"]), cache, backend="triton"
    )
    wide = {name: value.double() for name, value in x.items()}
    assert_close(found, PROBLEM.attention(reference.nsa_attention)(**wide), torch.float16)
