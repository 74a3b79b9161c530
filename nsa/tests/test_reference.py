"""The oracle itself, against attention written with dense masks, and its own edges."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nsa import NSAConfig, reference
from nsa.phi import MlpPhi, WeightedPhi
from nsa.tests.testing import Problem

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=3, w=7)
PROBLEM = Problem(CONFIG, tokens=50, batch=2, kv_heads=2, group_size=3, dk=8, dv=4, dtype=torch.float64)


def dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention under a mask [B|1,Hq|1,T,K]; rows without keys give 0."""
    group_size = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group_size, dim=2) for x in (k, v))
    logits = torch.einsum("bthd,bkhd->bhtk", q, k) / math.sqrt(q.shape[-1])
    p = logits.masked_fill(~mask, -math.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhtk,bkhd->bthd", p, v)


def test_window_is_a_band() -> None:
    x = PROBLEM.tensors()
    t, s = torch.arange(50)[:, None], torch.arange(50)[None]
    band = (s <= t) & (s > t - CONFIG.w)
    found = reference.sliding_window_attention(x["q"], x["k_win"], x["v_win"], CONFIG.w)
    torch.testing.assert_close(found, dense(x["q"], x["k_win"], x["v_win"], band[None, None]))


def test_compressed_attention_sees_complete_spans_only() -> None:
    x = PROBLEM.tensors()
    k, v = (reference.compress(x[name], CONFIG) for name in ("k_cmp_in", "v_cmp_in"))
    visible = torch.arange(k.shape[1])[None] * CONFIG.d + CONFIG.l - 1 <= torch.arange(50)[:, None]
    o, lse = reference.compressed_attention(x["q"], k, v, CONFIG)
    torch.testing.assert_close(o, dense(x["q"], k, v, visible[None, None]))
    assert (o[:, : CONFIG.l - 1] == 0).all() and (lse[:, : CONFIG.l - 1] == -math.inf).all()
    assert lse[:, CONFIG.l - 1 :].isfinite().all()


def test_selected_attention_sees_its_blocks_only() -> None:
    x = PROBLEM.tensors()
    k_cmp = reference.compress(x["k_cmp_in"], CONFIG)
    indices = reference.select_blocks(x["q"], k_cmp, CONFIG)
    block_of = torch.arange(50) // CONFIG.l_sel
    chosen = (indices[..., None] == block_of).any(-2)  # [B,T,Hkv,K]
    causal = torch.arange(50)[None] <= torch.arange(50)[:, None]
    mask = chosen.transpose(1, 2).repeat_interleave(3, dim=1) & causal
    found = reference.selected_attention(x["q"], x["k_sel"], x["v_sel"], indices, CONFIG)
    torch.testing.assert_close(found, dense(x["q"], x["k_sel"], x["v_sel"], mask))


def test_scores_are_overlap_times_probability_summed_over_the_group() -> None:
    x = PROBLEM.tensors()
    k_cmp = reference.compress(x["k_cmp_in"], CONFIG)
    t = 41
    visible = reference.compressed_count(t + 1, CONFIG)
    logits = torch.einsum("gd,kd->gk", x["q"][1, t, 3:6], k_cmp[1, :visible, 1]) / math.sqrt(8)
    p = logits.softmax(-1).sum(0)
    weights = [
        [len(set(range(i * 4, i * 4 + 8)) & set(range(j * 16, j * 16 + 16))) for j in range(3)] for i in range(visible)
    ]
    found = reference.block_scores(x["q"], k_cmp, CONFIG)[1][t][1]
    torch.testing.assert_close(found, p @ torch.tensor(weights, dtype=torch.float64))


def test_forced_blocks_are_counted_once() -> None:
    config = NSAConfig(l_sel=16, n_sel=5, init_blocks=2, local_blocks=3)
    assert reference.forced_blocks(40, config) == {0, 1, 2}
    assert reference.chosen_blocks(40, [0.0, 0.0, 0.0], config) == [0, 1, 2]
    assert reference.chosen_blocks(16 * 9, [9, 8, 1, 2, 2, 2, 0, 0, 0, 0], config) == [0, 1, 7, 8, 9]


def test_ties_go_to_the_lower_index() -> None:
    config = NSAConfig(l_sel=16, n_sel=4, init_blocks=0, local_blocks=1)
    assert reference.chosen_blocks(16 * 5, [1.0, 3.0, 1.0, 3.0, 1.0, 0.0], config) == [0, 1, 3, 5]


def test_packed_equals_each_sequence_alone() -> None:
    packed = Problem(CONFIG, kv_heads=2, group_size=3, dk=8, dv=4, lengths=(0, 21, 1, 40, 0), dtype=torch.float64)
    x = packed.tensors()
    found = packed.attention(reference.nsa_attention)(**x)
    for first, end in ((0, 21), (21, 22), (22, 62)):
        alone = {name: tensor[:, first:end] for name, tensor in x.items()}
        single = Problem(CONFIG, tokens=end - first).attention(reference.nsa_attention)(**alone)
        torch.testing.assert_close(found[:, first:end], single)


def test_queries_after_earlier_keys_equal_the_end_of_each_sequence_alone() -> None:
    packed = Problem(
        CONFIG, kv_heads=2, group_size=3, dk=8, dv=4, lengths=(0, 5, 1, 9), before=(7, 30, 0, 33), dtype=torch.float64
    )
    x = packed.tensors()
    found = packed.attention(reference.nsa_attention)(**x)
    for (first, end), (key, key_end) in (((0, 5), (7, 42)), ((5, 6), (42, 43)), ((6, 15), (43, 85))):
        alone = {name: y[:, first:end] if name in ("q", "gates") else y[:, key:key_end] for name, y in x.items()}
        start = torch.tensor([key_end - key - (end - first)])
        single = Problem(CONFIG, tokens=end - first).attention(reference.nsa_attention, q_start=start)(**alone)
        torch.testing.assert_close(found[:, first:end], single)


def test_sampled_rows_equal_all_rows() -> None:
    x = PROBLEM.tensors()
    rows = [49, 0, 7, 31]
    whole, sampled = (PROBLEM.attention(reference.nsa_attention, rows=r)(**x) for r in (None, rows))
    torch.testing.assert_close(sampled, whole[:, rows], rtol=0, atol=0)


def test_later_chunk_equals_the_end_of_the_whole() -> None:
    x = PROBLEM.tensors()
    whole = PROBLEM.attention(reference.nsa_attention)(**x)
    late = {**x, "q": x["q"][:, 30:], "gates": x["gates"][:, 30:]}
    found = PROBLEM.attention(reference.nsa_attention, q_start=torch.tensor([30, 30]))(**late)
    torch.testing.assert_close(found, whole[:, 30:])


def test_learned_maps_reduce_to_the_mean() -> None:
    x = PROBLEM.tensors()["k_sel"]
    mean = reference.compress(x, CONFIG)
    weighted = reference.compress(x, CONFIG, phi=WeightedPhi(torch.full((2, 8), 1 / 8, dtype=torch.float64)))
    torch.testing.assert_close(weighted, mean)
    average = torch.eye(8, dtype=torch.float64).repeat(8, 1).expand(2, 64, 8) / 8
    zeros = torch.zeros(2, 8, dtype=torch.float64)
    phi = MlpPhi(
        torch.zeros(2, 8, 8, dtype=torch.float64),
        average,
        zeros + 50,
        torch.eye(8).double().expand(2, 8, 8),
        zeros - 50,
    )
    torch.testing.assert_close(reference.compress(x, CONFIG, phi=phi), mean)  # gelu is the identity far from 0


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_sequences_shorter_than_a_span_have_no_compressed_token(tokens: int) -> None:
    x = torch.randn(1, tokens, 2, 4)
    assert reference.compress(x, CONFIG).shape == (1, 0, 2, 4)


@pytest.mark.parametrize(("batch", "tokens"), [(1, 0), (0, 9)])
def test_without_a_query_every_gradient_is_zero_and_none_is_missing(batch: int, tokens: int) -> None:
    shapes = ((4, 8), (2, 8), (2, 6), (4, 3))
    inputs = [torch.zeros(batch, tokens, *shape, requires_grad=True) for shape in shapes]
    o = reference.nsa_attention(*inputs, CONFIG)
    o.sum().backward()
    assert o.shape == (batch, tokens, 4, 6)
    assert all(x.grad is not None and x.grad.shape == x.shape for x in inputs)


def test_without_a_sampled_row_gradients_of_the_whole_are_zero() -> None:
    inputs = [torch.full((1, 9, *shape), math.inf, requires_grad=True) for shape in ((4, 8), (2, 8), (2, 6))]
    reference.sliding_window_attention(*inputs, 5, rows=[]).sum().backward()
    assert all(x.grad is not None and x.grad.eq(0).all() for x in inputs)
