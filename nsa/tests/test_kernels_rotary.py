"""The rotary kernel against the oracle: values and gradients, whatever the width, the layout and the positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nsa import ops, reference
from nsa.tests.kernel_cases import DEVICE, DTYPES, SLOW
from nsa.tests.testing import assert_outcome, expect_route, outcome

pytestmark = pytest.mark.triton


def _judge(
    x: Tensor, positions: Tensor, base: float = 100.0, laid_out: Callable[[Tensor], Tensor] = lambda x: x
) -> None:
    """`laid_out` takes what is rotated out of x, whose whole gradient is judged."""
    with expect_route(rotate="triton"):
        found = outcome(lambda x: ops.rotate(laid_out(x), positions, base, backend="triton"), {"x": x})
    expected = outcome(lambda x: reference.rotate(laid_out(x), positions, base), {"x": x.double()})
    assert_outcome(found, expected, x.dtype)


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [6, 96, 192, *(pytest.param(dim, marks=SLOW) for dim in (2, 64, 80, 128, 256))])
def test_any_width(dim: int, dtype: torch.dtype) -> None:
    _judge(_random(2, 5, 3, dim, dtype=dtype), torch.arange(5, device=DEVICE)[None] + 3)


@pytest.mark.parametrize("positions", ["of-each", "of-all", "int32"])
def test_more_tokens_and_heads_than_one_program_takes(positions: str) -> None:
    at = torch.randint(0, 1000, (2, 35), device=DEVICE)
    chosen = {"of-each": at, "of-all": at[:1], "int32": at.int()}[positions]
    _judge(_random(2, 35, 9, 16), chosen)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "one-of-three": lambda x: x.unflatten(2, (3, -1))[:, :, 1],
    "heads-first": lambda x: x.transpose(1, 2),
    "columns-apart": lambda x: x.transpose(2, 3)[..., :6],
    "every-other": lambda x: x[:, ::2],
    "no-tokens": lambda x: x[:, :0],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout(name: str) -> None:
    x = _random(2, 6, 6, 16)
    _judge(x, torch.arange(LAYOUTS[name](x).shape[1], device=DEVICE)[None], laid_out=LAYOUTS[name])


def test_far_positions_turn_by_fp32_angles() -> None:
    _judge(_random(1, 4, 1, 64), torch.tensor([[0, 65_535, 131_072, 1_000_003]], device=DEVICE), base=1e4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": torch.zeros(1, 3, 1, 5)}, "even head dimension, got 5"),
        ({"x": torch.zeros(3, 1, 4)}, r"x must have the shape \[B,T,H,D\]"),
        ({"positions": torch.zeros(1, 4, dtype=torch.int64)}, r"positions must have the shape \[B or 1,T=3\]"),
        ({"positions": torch.zeros(2, 3, dtype=torch.int64)}, "positions must be of B=1 entries or of one"),
        ({"positions": torch.zeros(1, 3)}, "positions must be int32 or int64"),
        ({"base": 0.0}, "must be a positive number, got 0.0"),
    ],
)
def test_refuses_with_a_reason(change: dict[str, object], sentence: str) -> None:
    arguments = {"x": torch.zeros(1, 3, 1, 4), "positions": torch.arange(3)[None], "base": 10.0, **change}
    with pytest.raises(ValueError, match=sentence):
        ops.rotate(**arguments)
