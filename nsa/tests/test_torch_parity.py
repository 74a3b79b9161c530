"""The PyTorch backend against the oracle: forward, every gradient, every edge."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from nsa import NSAConfig, blocks, nsa_attention, ops, reference
from nsa.fallback import chunks
from nsa.fallback import torch as backend
from nsa.phi import MlpPhi, Phi, WeightedPhi
from nsa.routing import How
from nsa.tests.strategies import problems
from nsa.tests.testing import (
    Problem,
    assert_close,
    assert_outcome,
    assert_parity,
    assert_selection,
    expect_route,
    outcome,
)

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
PROBLEM = Problem(CONFIG, tokens=75, batch=2, kv_heads=2, group_size=2, dk=8, dv=4)
PACKED = replace(PROBLEM, batch=1, lengths=(0, 21, 1, 53, 0))
AFTER = replace(PACKED, lengths=(0, 21, 1, 5, 0), before=(0, 0, 30, 48, 9))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_attention_equals_the_oracle(problem: Problem) -> None:
    with expect_route(compressed="torch", selected="torch", window="torch", combine="torch"):
        assert_parity(problem)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_selection_equals_the_oracle(problem: Problem) -> None:
    x = problem.tensors()
    k_cmp = ops.compress(x["k_cmp_in"], problem.config, cu_seqlens=problem.cu_seqlens_of_keys)
    found = ops.select_blocks(x["q"], k_cmp, problem.config, **problem.where)
    scores = reference.block_scores(x["q"].double(), k_cmp.double(), problem.config, **problem.where)
    positions = blocks.token_positions(problem.batch, problem.total, **problem.where)
    assert found.dtype == torch.int32
    assert_selection(found, scores, positions, problem.config)


@pytest.mark.parametrize("problem", [PROBLEM, PACKED, AFTER], ids=["batch", "packed", "packed-after"])
def test_small_chunks_change_nothing(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "TILE_BYTES", 1)  # one query at a time
    assert_parity(problem)


@pytest.mark.parametrize("problem", [PROBLEM, PACKED, AFTER], ids=["batch", "packed", "packed-after"])
def test_own_selection_equals_the_oracles(problem: Problem) -> None:
    x = {name: tensor.double() for name, tensor in problem.tensors().items()}
    expected = outcome(problem.attention(reference.nsa_attention), x)
    assert_outcome(outcome(problem.attention(nsa_attention), x), expected, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    assert_parity(replace(PROBLEM, dtype=dtype))


@pytest.mark.parametrize("problem", [PROBLEM, PACKED], ids=["batch", "packed"])
def test_autocast_rounds_no_product_inside(problem: Problem) -> None:
    """What computes in fp32 does so wherever it and its gradient are called."""
    how, config = How(0.3, problem.cu_seqlens), problem.config

    def branches(q, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win):  # type: ignore[no-untyped-def]
        o_cmp, lse = backend.compressed(q, k_cmp, v_cmp, config, how)
        chosen = backend.select(q, k_cmp, config, lse, how)
        o_sel, _ = backend.selected(q, k_sel, v_sel, chosen, config, how)
        o_win, _ = backend.window(q, k_win, v_win, config.w, how)
        return torch.cat([o_cmp, o_sel, o_win], -1)

    x = problem.tensors()
    given = {name: x[name] for name in ("q", "k_sel", "v_sel", "k_win", "v_win")}
    given |= {f"{n}_cmp": reference.compress(x[f"{n}_cmp_in"], config, cu_seqlens=problem.cu_seqlens) for n in "kv"}
    expected = outcome(branches, given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = outcome(branches, given)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_shared_keys_and_values_sum_their_gradients() -> None:
    x = {name: PROBLEM.tensors()[name] for name in ("q", "k_sel", "v_sel", "gates")}
    indices = reference.select_blocks(x["q"], reference.compress(x["k_sel"], CONFIG), CONFIG)

    def shared(function):
        return lambda q, k_sel, v_sel, gates: function(q, k_sel, v_sel, gates, CONFIG, block_indices=indices)

    expected = outcome(shared(reference.nsa_attention), {name: tensor.double() for name, tensor in x.items()})
    assert_outcome(outcome(shared(nsa_attention), x), expected, torch.float32)


def test_lse_is_the_oracles() -> None:
    x = PROBLEM.tensors()
    k, v = (ops.compress(x[name], CONFIG) for name in ("k_cmp_in", "v_cmp_in"))
    _, found = ops.compressed_attention(x["q"], k, v, CONFIG)
    _, expected = reference.compressed_attention(x["q"].double(), k.double(), v.double(), CONFIG)
    assert found.dtype == torch.float32
    assert (found[:, : CONFIG.l - 1] == -math.inf).all()
    assert_close(found, expected, torch.float32)


def test_lse_given_to_the_selection_changes_nothing() -> None:
    x = PROBLEM.tensors()
    k, v = (ops.compress(x[name], CONFIG) for name in ("k_cmp_in", "v_cmp_in"))
    _, lse = ops.compressed_attention(x["q"], k, v, CONFIG)
    assert torch.equal(ops.select_blocks(x["q"], k, CONFIG, lse=lse), ops.select_blocks(x["q"], k, CONFIG))


@pytest.mark.parametrize("starts", [(30, 30), (55, 7)], ids=["alike", "each its own"])
def test_chunks_of_a_prefill(starts: tuple[int, int]) -> None:
    x = PROBLEM.tensors()
    late = {**x, "q": x["q"][:, :20], "gates": x["gates"][:, :20]}
    q_start = torch.tensor(starts)
    wide = {name: tensor.double() for name, tensor in late.items()}
    k_cmp = reference.compress(wide["k_cmp_in"], CONFIG)
    indices = reference.select_blocks(wide["q"], k_cmp, CONFIG, q_start=q_start)
    options = {"q_start": q_start, "block_indices": indices}
    expected = outcome(PROBLEM.attention(reference.nsa_attention, **options), wide)
    assert_outcome(outcome(PROBLEM.attention(nsa_attention, **options), late), expected, torch.float32)


def learned_maps() -> list[tuple[str, type, tuple[torch.Tensor, ...]]]:
    random = torch.Generator().manual_seed(3)
    shapes = [(2, 8, 8), (2, 64, 5), (2, 5), (2, 5, 8), (2, 8)]
    mlp = tuple(0.3 * torch.randn(shape, generator=random) for shape in shapes)
    return [("weighted", WeightedPhi, (torch.randn(2, 8, generator=random),)), ("mlp", MlpPhi, mlp)]


@pytest.mark.parametrize("problem", [PROBLEM, PACKED], ids=["batch", "packed"])
@pytest.mark.parametrize(("kind", "parameters"), [m[1:] for m in learned_maps()], ids=[m[0] for m in learned_maps()])
def test_learned_compression_and_its_parameters_gradients(
    problem: Problem, kind: type[Phi], parameters: tuple[torch.Tensor, ...]
) -> None:
    names = [f"p{i}" for i in range(len(parameters))]
    tensors = {"x": problem.tensors()["k_sel"], **dict(zip(names, parameters, strict=True))}

    def compress(function):
        return lambda x, **phi: function(x, CONFIG, phi=kind(*phi.values()), cu_seqlens=problem.cu_seqlens)

    expected = outcome(compress(reference.compress), {name: tensor.double() for name, tensor in tensors.items()})
    assert_outcome(outcome(compress(ops.compress), tensors), expected, torch.float32)


def test_given_compressed_tokens_receive_the_gradients() -> None:
    x = PROBLEM.tensors()
    tensors = {
        **{name: x[name] for name in ("q", "k_sel", "v_sel", "gates")},
        "k_cmp": ops.compress(x["k_cmp_in"], CONFIG),
        "v_cmp": ops.compress(x["v_cmp_in"], CONFIG),
    }
    indices = reference.select_blocks(x["q"], tensors["k_cmp"], CONFIG)

    def given_tokens(function):
        return lambda q, k_sel, v_sel, gates, k_cmp, v_cmp: function(
            q, k_sel, v_sel, gates, CONFIG, compressed=(k_cmp, v_cmp), block_indices=indices
        )

    expected = outcome(given_tokens(reference.nsa_attention), {n: tensor.double() for n, tensor in tensors.items()})
    assert expected["grad.k_cmp"].abs().max() > 0
    assert_outcome(outcome(given_tokens(nsa_attention), tensors), expected, torch.float32)


def test_scale_is_an_argument() -> None:
    assert_parity_with_scale = PROBLEM.tensors()
    q, k, v = (assert_parity_with_scale[name] for name in ("q", "k_win", "v_win"))
    found = ops.sliding_window_attention(q, k, v, 20, scale=0.7)
    expected = reference.sliding_window_attention(q.double(), k.double(), v.double(), 20, scale=0.7)
    assert_close(found, expected, torch.float32)


@pytest.mark.parametrize("problem", [PROBLEM, PACKED], ids=["batch", "packed"])
def test_the_whole_chooses_and_attends_with_its_scale(problem: Problem) -> None:
    tensors = {name: tensor.double() for name, tensor in problem.tensors().items()}
    found, expected = (
        outcome(problem.attention(function, scale=0.9), tensors)
        for function in (nsa_attention, reference.nsa_attention)
    )
    assert_outcome(found, expected, torch.float64)


def test_padding_may_stand_anywhere_among_the_indices() -> None:
    x = PROBLEM.tensors()
    ascending = PROBLEM.oracle_blocks(x)
    shuffled = ascending[..., [3, 0, 2, 1]]
    q, k, v = x["q"], x["k_sel"], x["v_sel"]
    one, other = (ops.selected_attention(q, k, v, indices, CONFIG) for indices in (ascending, shuffled))
    assert_close(other, one, torch.float32)


def test_rows_without_blocks_are_zero_and_so_are_their_gradients() -> None:
    x = PROBLEM.tensors()
    indices = PROBLEM.oracle_blocks(x)
    indices[:, 10:20] = -1
    found = outcome(
        lambda q, k, v: ops.selected_attention(q, k, v, indices, CONFIG),
        {"q": x["q"], "k": x["k_sel"], "v": x["v_sel"]},
    )
    assert (found["o"][:, 10:20] == 0).all() and (found["grad.q"][:, 10:20] == 0).all()
    assert found["o"][:, 20:].abs().min() > 0
    assert all(value.isfinite().all() for value in found.values())


def test_what_comes_back_to_rows_that_see_nothing_goes_no_further() -> None:
    x = {name: PROBLEM.tensors()[name].requires_grad_() for name in ("q", "k_sel", "v_sel")}
    q, k, v = x["q"], *(ops.compress(x[name], CONFIG) for name in ("k_sel", "v_sel"))
    o, lse = ops.compressed_attention(q, k, v, CONFIG)
    nothing = (lse == -math.inf)[..., None]
    found, expected = (
        torch.autograd.grad(o, x.values(), torch.ones_like(o).masked_fill(nothing, fill), retain_graph=True)
        for fill in (math.nan, 0.0)
    )
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
