"""How head dimensions are held in tiles: kernels and their launches agree."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from nsa.kernels.common.sizes import split_dim
from nsa.kernels.common.tiles import load_pair, store_pair, zeros_pair
from nsa.tests.kernel_cases import DEVICE

pytestmark = pytest.mark.triton


@triton.jit
def _widths(p_out, D: tl.constexpr):
    b_0, b_1 = zeros_pair(16, D)
    tl.store(p_out, b_0.shape[1])
    tl.store(p_out + 1, b_1.shape[1] if b_0.shape[1] < D else 0)


@triton.jit
def _copy(p_x, p_out, D: tl.constexpr, ADD: tl.constexpr):
    o_row = tl.arange(0, 16)
    b_0, b_1 = load_pair(p_x, o_row * D, o_row < 11, D, True)
    store_pair(p_out, o_row * D, o_row < 13, b_0, b_1, D, ADD)


@pytest.mark.parametrize("size", [*range(1, 257, 8), 16, 48, 80, 96, 128, 192, 224, 256])
def test_kernels_split_head_dimensions_as_their_launches_do(size: int) -> None:
    found = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    _widths[(1,)](found, D=size)
    assert tuple(found.tolist()) == split_dim(size)


@pytest.mark.parametrize("size", [8, 16, 40, 80, 96, 192, 256])
def test_pairs_hold_every_column_once(size: int) -> None:
    x, out = torch.randn(16, size, device=DEVICE), torch.ones(16, size, device=DEVICE)
    expected = torch.cat([x[:11], torch.zeros(2, size, device=DEVICE), out[13:]])
    _copy[(1,)](x, out, D=size, ADD=False)
    assert torch.equal(out, expected)
    _copy[(1,)](x, out, D=size, ADD=True)
    assert torch.equal(out[:11], 2 * x[:11])
