"""The walk of docs/architecture.md, from a function to a kernel, is what a call goes through."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest
import torch

import nsa
from nsa import ops
from nsa.plans import PLANS
from nsa.tests.kernel_cases import DEVICE

ROOT = Path(nsa.__file__).parents[1]
STEPS = re.findall(r"^\| `(nsa/[\w/]+\.py)` \| `(\w+)` \|", (ROOT / "docs/architecture.md").read_text(), re.M)


@pytest.mark.triton
def test_a_call_goes_through_the_functions_of_the_walk_in_their_order() -> None:
    q, k, v = (torch.rand(1, 20, heads, 16, device=DEVICE, requires_grad=True) for heads in (4, 2, 2))
    called: dict[tuple[str, str], None] = {}

    def enter(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            called.setdefault((path.relative_to(ROOT).as_posix(), frame.f_code.co_name))

    PLANS.clear()  # the first call of its kind
    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        ops.sliding_window_attention(q, k, v, 5, backend="triton")
    finally:
        sys.setprofile(before)
    assert len(STEPS) > 10
    assert [step for step in called if step in STEPS] == STEPS
