"""A changed token changes no earlier output, bitwise; and gradients land exactly where a key was read."""

from __future__ import annotations

import pytest
import torch

from nsa import NSACache, NSAConfig, nsa_attention, ops, reference
from nsa.tests.testing import Problem

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=3, w=7)
PROBLEM = Problem(CONFIG, tokens=60, batch=2, kv_heads=2, group_size=2, dk=8, dv=8)


@pytest.mark.parametrize("changed", [1, 7, 8, 15, 16, 31, 33, 59])
def test_future_tokens_change_nothing_bitwise(changed: int) -> None:
    x = PROBLEM.tensors()
    before = PROBLEM.attention(nsa_attention)(**x)
    random = torch.Generator().manual_seed(5)
    for name, tensor in x.items():
        future = tensor[:, changed:]
        x[name] = torch.cat([tensor[:, :changed], torch.randn(future.shape, generator=random)], dim=1)
    after = PROBLEM.attention(nsa_attention)(**x)
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.equal(before[:, changed:], after[:, changed:])


@pytest.mark.parametrize("what", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("first", [1, 9, 30, 59])
def test_what_is_no_number_reaches_nothing_before_it(first: int, what: float) -> None:
    """A mask alone would not keep it out: 0 times NaN is NaN."""
    x = PROBLEM.tensors()
    before = PROBLEM.attention(nsa_attention)(**x)
    for tensor in x.values():
        tensor[1, first:] = what
    after = PROBLEM.attention(nsa_attention)(**x)
    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[1, :first], before[1, :first])
    assert not after[1, first:].isfinite().any()


def test_what_a_reset_cache_held_reaches_nothing() -> None:
    x = PROBLEM.tensors()
    k, v = (tuple(x[f"{name}_{branch}"] for branch in ("cmp_in", "sel", "win")) for name in "kv")
    cache = NSACache(CONFIG, 2, 2, 8, 8)
    cache.append(tuple(y / 0 for y in k), tuple(y / 0 for y in v))
    cache.reset()
    cache.append(k, v, counts=[60, 3])
    o, _ = ops.cached_attention(x["q"][:, -1:], x["gates"][:, -1:], cache)
    assert o.isfinite().all()


def test_other_sequences_of_a_pack_change_nothing_bitwise() -> None:
    packed = Problem(CONFIG, kv_heads=2, group_size=2, dk=8, dv=8, lengths=(23, 30, 17))
    x = packed.tensors()
    before = packed.attention(nsa_attention)(**x)
    y = {name: torch.cat([-t[:, :23], t[:, 23:53], 2 * t[:, 53:]], dim=1) for name, t in x.items()}
    after = packed.attention(nsa_attention)(**y)
    assert torch.equal(before[:, 23:53], after[:, 23:53])


@pytest.mark.parametrize("row", [0, 6, 7, 20, 59])
@pytest.mark.parametrize("module", [ops, reference], ids=["torch", "oracle"])
def test_gradients_of_one_query_land_on_the_keys_it_reads(row: int, module) -> None:
    x = {name: t.double().requires_grad_() for name, t in PROBLEM.tensors().items()}
    indices = PROBLEM.oracle_blocks(x)
    o = PROBLEM.attention(module.nsa_attention, block_indices=indices)(**x)
    o[1, row, 2:].sum().backward()  # batch entry 1, KV head 1
    window = set(range(max(0, row - CONFIG.w + 1), row + 1))
    chosen = {p for b in indices[1, row, 1].tolist() if b >= 0 for p in range(b * 16, min(b * 16 + 16, row + 1))}
    spans = [range(i * 4, i * 4 + 8) for i in range(60) if i * 4 + 7 <= row]
    for branch, read, keys in (
        ("win", window, len(window)),
        ("sel", chosen, len(chosen)),
        ("cmp_in", {p for span in spans for p in span}, len(spans)),
    ):
        assert support(x[f"v_{branch}"].grad) == {(1, p, 1) for p in read}
        assert support(x[f"k_{branch}"].grad) == ({(1, p, 1) for p in read} if keys >= 2 else set())


def support(grad: torch.Tensor) -> set[tuple[int, int, int]]:
    """(batch, token, head) where the gradient is not zero."""
    return {tuple(place) for place in grad.abs().sum(-1).nonzero().tolist()}
