"""Training on a GPU: learns in bf16, and every branch runs there (NSA_TEST_TRAIN=1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nsa import NSAConfig, flags
from nsa.bench import train
from nsa.bench.cases import Where
from nsa.models import LMConfig
from nsa.tests.testing import expect_route, need_cuda

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    need_cuda(flags.current().test_train, "NSA_TEST_TRAIN")
    yield


def test_it_learns_in_low_precision() -> None:
    sizes = NSAConfig(l=16, d=8, l_sel=32, n_sel=4, w=64)
    model = LMConfig(dim=64, depth=2, n_heads=4, n_kv_heads=1, dk=16, dv=16, hidden=128, nsa=sizes)
    run = train.Run(model, Where(torch.device("cuda"), torch.bfloat16, 0), 40, 4, 256, 5e-3)
    with expect_route(device="cuda") as recording:
        before = run.held_out()
        list(run.train(40))
    assert run.held_out() < before - 2.0
    for operation in ("compressed", "selected", "window"):
        routes = recording.of(operation)
        assert routes and all(route.device.startswith("cuda") and not route.interpreted for route in routes)
