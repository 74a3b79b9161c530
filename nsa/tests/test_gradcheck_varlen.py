"""fp64 gradients against finite differences, packed sequences included."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from nsa import NSAConfig, nsa_attention, ops, reference
from nsa.phi import MlpPhi, WeightedPhi
from nsa.tests.testing import Problem

CONFIG = NSAConfig(l=4, d=2, l_sel=4, n_sel=3, w=3)
BATCH = Problem(CONFIG, tokens=9, batch=2, kv_heads=1, group_size=2, dk=3, dv=2, dtype=torch.float64)
PACKED = Problem(CONFIG, kv_heads=2, group_size=1, dk=2, dv=3, lengths=(0, 7, 1, 5), dtype=torch.float64)


@pytest.mark.parametrize("problem", [BATCH, PACKED], ids=["batch", "packed"])
@pytest.mark.parametrize("function", [nsa_attention, reference.nsa_attention], ids=["torch", "oracle"])
def test_attention(problem: Problem, function) -> None:
    x = {name: t.requires_grad_() for name, t in problem.tensors().items()}
    call = problem.attention(function, block_indices=problem.oracle_blocks(x))
    assert gradcheck(lambda *tensors: call(*tensors), tuple(x.values()), fast_mode=True)


@pytest.mark.parametrize("module", [ops, reference], ids=["torch", "oracle"])
def test_learned_compression(module) -> None:
    random = torch.Generator().manual_seed(0)
    x = BATCH.tensors()["k_sel"].requires_grad_()
    shapes = [(1, 4, 3), (1, 12, 5), (1, 5), (1, 5, 3), (1, 3)]
    mlp = [torch.randn(s, generator=random, dtype=torch.float64).requires_grad_() for s in shapes]
    weight = torch.randn(1, 4, generator=random, dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda x, *p: module.compress(x, CONFIG, phi=MlpPhi(*p)), (x, *mlp))
    assert gradcheck(lambda x, w: module.compress(x, CONFIG, phi=WeightedPhi(w)), (x, weight))
