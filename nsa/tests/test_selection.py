"""The choice of blocks: forced blocks, ties, candidates, padding."""

from __future__ import annotations

import pytest
import torch

from nsa import NSACache, NSAConfig, ops, reference
from nsa.fallback.scoring import choose_blocks

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)


@pytest.mark.parametrize("init_blocks", [0, 1, 3])
@pytest.mark.parametrize("local_blocks", [0, 1, 2])
def test_chosen_as_the_oracle_chooses_for_any_scores(init_blocks: int, local_blocks: int) -> None:
    config = NSAConfig(l_sel=16, n_sel=5, init_blocks=init_blocks, local_blocks=local_blocks)
    scores = torch.randint(0, 3, (160, 10), generator=torch.Generator().manual_seed(0)).float()  # many ties
    found = choose_blocks(scores, torch.arange(160), config)
    for t in range(160):
        expected = reference.chosen_blocks(t, scores[t].tolist(), config)
        assert found[t].tolist() == expected + [-1] * (5 - len(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equal_logits_tie_and_the_lower_blocks_win(dtype: torch.dtype) -> None:
    q, k_cmp = torch.zeros(1, 200, 2, 8, dtype=dtype), torch.randn(1, 49, 1, 8).to(dtype)
    config = NSAConfig(l=8, d=4, l_sel=16, n_sel=5, init_blocks=0, local_blocks=1)
    found = ops.select_blocks(q, k_cmp, config)
    # Block 0 lacks the compressed token before it, so it scores a little less than blocks 1, 2, ...
    assert found[0, 199, 0].tolist() == [1, 2, 3, 4, 12]
    assert torch.equal(found, reference.select_blocks(q.double(), k_cmp.double(), config))


def test_the_first_block_ties_with_the_last_seen() -> None:
    """Equal sums of tokens in another order: 32, 32, 32, 16 and 16, 32, 32, 32 times 1/11."""
    config = NSAConfig(n_sel=3, init_blocks=0, local_blocks=1)
    found = ops.select_blocks(torch.zeros(1, 208, 1, 8), torch.randn(1, 12, 1, 8), config)
    assert found[0, 192:207, 0].unique(dim=0).tolist() == [[0, 1, 3]]


@pytest.mark.parametrize("group", [5, 8, 16])
def test_blocks_alike_tie_for_the_oracle_too(group: int) -> None:
    """With l = d = 3 l_sel, three blocks after one another share one compressed token: the lower of them go first."""
    config = NSAConfig(l=12, d=12, l_sel=4, n_sel=4, w=16)
    source = torch.Generator().manual_seed(0)
    q = torch.randn(1, 300, group, 16, generator=source, dtype=torch.float64)
    k_cmp = torch.randn(1, 25, 1, 16, generator=source, dtype=torch.float64)
    for chosen in reference.select_blocks(q, k_cmp, config)[0, :, 0].tolist():
        free = {block for block in chosen[:-1] if block > 0}
        assert all(set(range(block // 3 * 3, block)) <= {0, *chosen} for block in free - {chosen[-2]})
    assert torch.equal(ops.select_blocks(q, k_cmp, config), reference.select_blocks(q, k_cmp, config))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("group", [4, 5, 7, 8, 12, 16])
def test_equal_blocks_tie_whatever_heads_share_them(group: int, dtype: torch.dtype) -> None:
    """All blocks hold the same keys, so the lowest are chosen of those not forced; in a step of decode too."""
    config, source = NSAConfig(l=4, d=2, l_sel=8, n_sel=5, w=8), torch.Generator().manual_seed(0)
    q = torch.randn(1, 90, 2 * group, 8, generator=source, dtype=dtype)
    keys = torch.randn(1, 8, 2, 8, generator=source, dtype=dtype).repeat(1, 12, 1, 1)[:, :90]
    found = ops.select_blocks(q, ops.compress(keys, config), config)
    assert (found[0, 5 * 8 + 2 :, :, :3] == torch.tensor([0, 1, 2])).all()
    cache = NSACache(config, 1, 2, 8, 8, capacity=90, dtype=dtype)
    cache.append(keys, keys)
    _, last = ops.cached_attention(q[:, -1:], torch.ones(1, 1, 2 * group, 3, dtype=dtype), cache)
    assert torch.equal(last, found[:, -1:])


def test_early_queries_take_all_candidates() -> None:
    q, k_cmp = torch.randn(1, 40, 2, 8), torch.randn(1, 9, 2, 8)
    found = ops.select_blocks(q, k_cmp, CONFIG)
    assert (found[0, :16] == torch.tensor([0, -1, -1, -1])).all()
    assert (found[0, 16:32] == torch.tensor([0, 1, -1, -1])).all()
    assert (found[0, 32:] == torch.tensor([0, 1, 2, -1])).all()


def test_forced_blocks_are_chosen_whatever_the_scores() -> None:
    q, k_cmp = torch.full((1, 100, 2, 8), torch.nan), torch.randn(1, 24, 2, 8)
    found = ops.select_blocks(q, k_cmp, CONFIG)
    assert found[0, 99].tolist() == [[0, 1, 5, 6]] * 2


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_leaves_the_lse_as_it_is(compiled: bool) -> None:
    """Of the heads that choose together, rounding it would weigh some more than others."""
    q, k_cmp = 3 * torch.randn(1, 200, 8, 16), torch.randn(1, 49, 1, 16)
    narrow = q.bfloat16(), k_cmp.bfloat16(), CONFIG
    _, lse = ops.compressed_attention(*narrow[:2], narrow[1], CONFIG)
    select = torch.compile(ops.select_blocks, backend="eager") if compiled else ops.select_blocks
    with torch.autocast("cpu", torch.bfloat16):
        found = select(q, k_cmp, CONFIG, lse=lse)
    assert torch.equal(found, ops.select_blocks(*narrow, lse=lse))


def test_selection_has_no_gradient() -> None:
    q, k_cmp = torch.randn(1, 40, 2, 8, requires_grad=True), torch.randn(1, 9, 2, 8, requires_grad=True)
    assert not ops.select_blocks(q, k_cmp, CONFIG).requires_grad


def test_a_needle_is_selected() -> None:
    tokens, needle = 2048, 700
    config = NSAConfig(n_sel=4)
    k = 0.05 * torch.randn(1, tokens, 1, 16, generator=torch.Generator().manual_seed(0))
    q = torch.zeros(1, tokens, 1, 16)
    q[:, -1, :, 0] = 30.0
    k[:, needle - 20 : needle + 20, :, 0] += 4.0
    found = ops.select_blocks(q, ops.compress(k, config), config)
    assert needle // 64 in found[0, -1, 0].tolist()
