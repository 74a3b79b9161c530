"""The gated sum and its gradient against the oracle."""

from __future__ import annotations

import pytest
import torch

from nsa import reference
from nsa.kernels.combine import GatedCombine, stats
from nsa.testing import Problem, assert_close
from nsa.tests.kernel_cases import DEVICE, DTYPES, SMALL, judge

pytestmark = pytest.mark.triton


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dv", [16, 24, 48])
def test_matches_the_oracle(dv: int, dtype: torch.dtype) -> None:
    problem = Problem(SMALL, tokens=13, batch=2, group_size=3, dk=dv, dv=dv, dtype=dtype, device=DEVICE)
    found = problem.tensors()
    branches = {f"o_{name}": torch.randn_like(found["q"]) for name in ("cmp", "sel", "win")}
    judge(
        problem,
        {**branches, "gates": found["gates"]},
        lambda o_cmp, o_sel, o_win, gates: GatedCombine.apply(o_cmp, o_sel, o_win, gates),
        reference.gated_combine,
    )


def test_the_stats_of_the_branches_under_their_gates() -> None:
    do, *branches = (torch.randn(2, 5, 3, 16, device=DEVICE) for _ in range(4))
    lses = [torch.randn(2, 5, 3, device=DEVICE) for _ in branches]
    gates = torch.randn(2, 5, 3, 3, device=DEVICE, dtype=torch.float16)
    gates[0, 0], lses[1][0, 1] = 0, float("-inf")
    expected = torch.stack([(do.double() * o.double()).sum(-1) for o in branches])
    found, dgates = stats(do, tuple(branches), tuple(lses), gates)
    assert_close(dgates, expected.movedim(0, -1), torch.float16)
    high, low = (found >> 32).int().view(torch.float32), found.int()
    columns = gates.movedim(-1, 0).double()
    p = (columns.abs() * torch.stack(lses).neg().double().exp()).masked_fill(torch.stack(lses).isinf(), 0)
    assert_close(torch.exp2(-high), p, torch.float32)
    assert torch.equal(high == float("inf"), p == 0)
    assert_close(low.view(torch.float32), expected, torch.float32)
    assert torch.equal((low & 1).bool(), columns < 0)
