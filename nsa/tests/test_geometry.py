"""Configuration and block geometry, against the definitions written out."""

from __future__ import annotations

import pytest
import torch

from nsa import NSAConfig, blocks
from nsa.tests.strategies import CONFIGS

SMALL = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"l": 30, "d": 16}, "l must be a multiple of d"),
        ({"l": 8, "d": 16}, "d must not exceed l"),
        ({"w": 0}, "w must be an integer of at least 1"),
        ({"n_sel": 2}, "n_sel must be at least init_blocks"),
        ({"d": 0}, "d must be an integer of at least 1"),
        ({"init_blocks": -1}, "init_blocks must be an integer of at least 0"),
        ({"l_sel": 64.0}, "l_sel must be an integer"),
    ],
)
def test_meaningless_sizes_are_refused(sizes: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        NSAConfig(**sizes)


def test_d_need_not_divide_l_sel() -> None:
    assert NSAConfig(l=6, d=3, l_sel=8, n_sel=3).l_sel == 8


@pytest.mark.parametrize("config", CONFIGS)
def test_compressed_tokens_are_those_whose_span_is_complete(config: NSAConfig) -> None:
    for tokens in range(60):
        spans = [i for i in range(60) if i * config.d + config.l <= tokens]
        assert blocks.num_compressed(tokens, config) == len(spans)


@pytest.mark.parametrize("config", [*CONFIGS, NSAConfig(), NSAConfig(l=4, d=1, l_sel=7, n_sel=3)])
def test_overlap_band_holds_every_overlap(config: NSAConfig) -> None:
    first, weights = blocks.overlap_band(9, config)
    found = {
        (int(first[j]) + k, j): int(weights[j, k]) for j in range(9) for k in range(weights.shape[1]) if weights[j, k]
    }
    tokens = range(9 * config.l_sel + config.l)
    wanted = {
        (i, j): len(
            set(range(i * config.d, i * config.d + config.l)) & set(range(j * config.l_sel, (j + 1) * config.l_sel))
        )
        for i in tokens
        for j in range(9)
    }
    assert found == {pair: shared for pair, shared in wanted.items() if shared}


def test_default_sizes_give_the_papers_weights() -> None:
    _, weights = blocks.overlap_band(4, NSAConfig())
    assert (weights[2] / 16).tolist() == [1, 2, 2, 2, 1]


@pytest.mark.parametrize(("tokens", "reads"), [(512, 1055), (1024, 1599), (2048, 1663), (4096, 1791)])
def test_expected_reads_of_the_seeds_lengths(tokens: int, reads: int) -> None:
    assert blocks.reads_expected(tokens - 1, NSAConfig()) == reads


def test_expected_reads_count_the_blocks_given() -> None:
    assert blocks.reads_expected(37, SMALL, [0, 2, -1, -1]) == 8 + (16 + 6) + 20
    with pytest.raises(ValueError, match="pass selected="):
        blocks.reads_expected(99, NSAConfig(l=8, d=4, l_sel=16, n_sel=2, init_blocks=0, local_blocks=0))


def test_packed_borders_of_compressed_tokens() -> None:
    borders = torch.tensor([0, 0, 1, 9, 40], dtype=torch.int32)
    assert blocks.cu_seqlens_cmp(borders, SMALL).tolist() == [0, 0, 0, 1, 7]
    assert blocks.cu_seqlens_cmp(borders, SMALL).dtype == torch.int32


def test_positions_start_again_at_each_border() -> None:
    borders = torch.tensor([0, 2, 2, 3, 6], dtype=torch.int32)
    assert blocks.token_positions(1, 6, cu_seqlens=borders).tolist() == [[0, 1, 0, 0, 1, 2]]
    assert blocks.token_positions(2, 2, q_start=torch.tensor([5, 0])).tolist() == [[5, 6], [0, 1]]


# --- ranges ---


def test_indices_as_ranges() -> None:
    indices = torch.tensor([[[[0, -1, 2]], [[1, 0, -1]]]], dtype=torch.int32)  # [1,2,1,3]
    positions = torch.tensor([[37, 20]])
    ranges = blocks.indices_to_ranges(indices, positions, SMALL)
    assert ranges.tolist() == [[[[[0, 16], [0, 0], [32, 38]]], [[[16, 21], [0, 16], [0, 0]]]]]
