"""What is replaced in Triton's interpreter computes what it did: shown by what the language itself makes of it."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from nsa.tests.kernel_cases import DEVICE

pytestmark = pytest.mark.triton


@triton.jit
def _sorted_and_folded(p_x, p_sorted, p_rows, p_all, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    o = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    b_x = tl.load(p_x + o)
    tl.store(p_sorted + o, tl.sort(b_x))
    tl.store(p_rows + tl.arange(0, COLUMNS)[None, :], tl.xor_sum(b_x, 0, keep_dims=True))
    tl.store(p_all, tl.xor_sum(tl.xor_sum(b_x, 1), 0))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_reductions_by_xor(dtype: torch.dtype) -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (4, 16), dtype=dtype, device=DEVICE)
    in_order, rows, whole = torch.empty_like(x), torch.empty_like(x[0]), torch.empty_like(x[0, :1])
    _sorted_and_folded[(1,)](x, in_order, rows, whole, *x.shape)
    assert torch.equal(in_order, x.sort(1).values)
    assert torch.equal(rows, x[0] ^ x[1] ^ x[2] ^ x[3])
    expected = 0
    for value in x.flatten().tolist():
        expected ^= value
    assert whole.item() == expected
