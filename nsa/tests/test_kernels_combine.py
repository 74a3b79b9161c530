"""The gated sum and its gradient against the oracle."""

from __future__ import annotations

import pytest
import torch

from nsa import reference
from nsa.kernels.combine import gated_combine, stats
from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.tests.kernel_cases import DEVICE, DTYPES, SMALL, judge
from nsa.tests.testing import Problem, assert_close

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
        lambda o_cmp, o_sel, o_win, gates: gated_combine((o_cmp, o_sel, o_win, gates), ())[0],
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
    found = torch.stack(found)
    high, low = (found >> 32).int().view(torch.float32), found.int()
    columns = gates.movedim(-1, 0).double()
    p = (columns.abs() * torch.stack(lses).neg().double().exp()).masked_fill(torch.stack(lses).isinf(), 0)
    assert_close(torch.exp2(-high), p, torch.float32)
    assert torch.equal(high == float("inf"), p == 0)
    assert_close(low.view(torch.float32), expected, torch.float32)
    assert torch.equal((low & 1).bool(), columns < 0)


def test_the_same_numbers_by_head() -> None:
    """As the fused gradient reads them: rows that fill up a group of 3 have p = 0 and delta = 0."""
    do, *branches = (torch.randn(2, 5, 6, 16, device=DEVICE) for _ in range(4))
    lses = tuple(torch.randn(2, 5, 6, device=DEVICE) for _ in branches)
    gates = torch.randn(2, 5, 6, 3, device=DEVICE)
    plain, expected = stats(do, tuple(branches), lses, gates)
    (*found, _), dgates = stats(do, tuple(branches), lses, gates, 2)
    assert torch.equal(dgates, expected)
    assert torch.equal(found[1], plain[1])  # the selected branch reads them as ever
    alone = backward_preprocess(do, branches[0], lses[0], 2), backward_preprocess(do, branches[0], lses[0])
    for by_head, packed in ((found[0], plain[0]), alone):
        numbers = torch.stack([(packed >> 32).int(), packed.int()]).unflatten(-1, (2, 3)).transpose(2, 3)
        assert torch.equal(by_head[..., :3].contiguous().view(torch.int32), numbers)
        assert by_head.stride(2) % 4 == 0
        assert (by_head[0, ..., 3] == float("inf")).all()
        assert (by_head[1, ..., 3] == 0).all()
