"""Gradients of packed sequences equal those of each sequence alone."""

from __future__ import annotations

import torch

from nsa import NSAConfig, nsa_attention
from nsa.tests.testing import Problem, assert_close, assert_parity, expect_route

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
LENGTHS = (0, 33, 1, 70, 7, 0)


def test_packed_gradients_equal_each_sequence_alone() -> None:
    packed = Problem(CONFIG, kv_heads=2, group_size=4, dk=16, dv=8, lengths=LENGTHS)
    whole = {name: t.requires_grad_() for name, t in packed.tensors().items()}
    packed.attention(nsa_attention)(**whole).square().sum().backward()
    first = 0
    for length in LENGTHS:
        rows = slice(first, first + length)
        alone = {name: t.detach()[:, rows].clone().requires_grad_() for name, t in whole.items()}
        Problem(CONFIG, tokens=length).attention(nsa_attention)(**alone).square().sum().backward()
        for name, tensor in alone.items():
            assert_close(whole[name].grad[:, rows], tensor.grad, torch.float32, name)
        first += length


def test_packed_gradients_equal_the_oracles() -> None:
    with expect_route(compressed="torch", selected="torch", window="torch"):
        assert_parity(Problem(CONFIG, kv_heads=1, group_size=6, dk=24, dv=16, lengths=LENGTHS))
