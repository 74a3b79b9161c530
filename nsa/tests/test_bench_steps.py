"""The bench of decode steps, whose CUDA graphs and events a stand-in takes the place of."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nsa import NSACache, ops
from nsa.bench import kernels_decode
from nsa.bench.cases import Where, case_of
from nsa.config import NSAConfig

CPU = Where(torch.device("cpu"), torch.float32, 0)
ARGUMENTS = Namespace(repeats=1, page_size=None, no_peers=True)
CASE = replace(case_of("2/1/16/16", 40, "random"), batch=2, config=NSAConfig(l=8, d=4, l_sel=8, n_sel=4, w=9))


class _Graph:
    """Replays by running again what was captured, which does not run while it is."""

    def __init__(self, call: Callable[[], Tensor]) -> None:
        self.call, self.o = call, torch.empty(0)

    def replay(self) -> None:
        x = self.call()
        self.o.resize_(x.shape).copy_(x)


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(call: Callable[[], Tensor]) -> tuple[_Graph, Tensor]:
        graph = _Graph(call)
        return graph, graph.o

    def cold(call: Callable[[], object], device: torch.device) -> float:
        call()
        return 1.0

    monkeypatch.setattr(kernels_decode, "captured", captured)
    monkeypatch.setattr(kernels_decode, "cold", cold)
    for name in ("BACK_TO_BACK", "WARM"):
        monkeypatch.setattr(kernels_decode, name, 1)
    monkeypatch.setattr(NSACache, "advance", lambda cache, counts=1: None)  # a step that ran has counted itself


@pytest.mark.parametrize("new", [1, 3])
def test_a_step_is_judged_and_timed(new: int) -> None:
    (row,) = kernels_decode.measure(CASE, CPU, ARGUMENTS, new)
    assert row["right"] and row["error"] < 1e-5 and (row["new"], row["us"]) == (new, 1e3)
    assert ("reads" in row) == (new == 1), "of several tokens none are counted"


def test_a_step_that_is_wrong_is_not_called_right(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ops.nsa_decode

    def spoiled(**how: Any) -> Tensor:
        return step(**how) + (0.1 if how["backend"] == "triton" else 0.0)

    monkeypatch.setattr(ops, "nsa_decode", spoiled)
    (row,) = kernels_decode.measure(CASE, CPU, ARGUMENTS, 1)
    assert not row["right"]
