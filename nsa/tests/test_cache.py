"""NSACache: growing, compressing as soon as a span is complete, reset, reorder, to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nsa import NSACache, NSAConfig, blocks, ops
from nsa.phi import MlpPhi, WeightedPhi
from nsa.tests.decoding import ODD, SMALL, Inputs, fed


@pytest.mark.parametrize("config", [SMALL, ODD, NSAConfig(l=5, d=5, l_sel=4, n_sel=3, w=1)])
def test_a_compressed_token_appears_with_its_last_position(config: NSAConfig) -> None:
    """Token i is emitted when i*d + l - 1 == t, and it is the mean of its span."""
    x = torch.randn(1, 60, 1, 3, dtype=torch.float64)
    cache = NSACache(config, 1, 1, 3, 3, capacity=1, dtype=torch.float64)
    for t in range(60):
        cache.append(x[:, t : t + 1], x[:, t : t + 1])
        count = blocks.num_compressed(t + 1, config)
        expected = ops.compress(x[:, : t + 1], config)
        torch.testing.assert_close(cache.compressed.k[:, :count], expected, rtol=0, atol=1e-14)
        assert cache.compressed.k[:, count:].eq(0).all(), "emitted before its span was complete"


def test_a_learned_map_sees_whole_spans_and_their_positions() -> None:
    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    weighted = WeightedPhi(random(2, SMALL.l))
    mlp = MlpPhi(random(2, SMALL.l, 6), random(2, SMALL.l * 6, 5), random(2, 5), random(2, 5, 6), random(2, 6))

    def compress(k: Tensor, v: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        k_cmp = ops.compress(k, SMALL, phi=weighted)
        position = first[:, None] + torch.arange(k_cmp.shape[1]) * SMALL.d
        return k_cmp + position[..., None, None], ops.compress(v, SMALL, phi=mlp)

    inputs = Inputs.random(90)
    k, v = inputs.k[0], inputs.v[0]
    cache = NSACache(SMALL, 2, 2, 8, 6, capacity=4, dtype=torch.float64, compress=compress)
    for start, end in [(0, 9), (9, 10), (10, 11), (11, 12), (12, 40), (40, 90)]:
        cache.append(k[:, start:end], v[:, start:end])
    expected_k, expected_v = compress(k, v, torch.zeros(2, dtype=torch.int64))
    count = expected_k.shape[1]
    torch.testing.assert_close(cache.compressed.k[:, :count], expected_k)
    torch.testing.assert_close(cache.compressed.v[:, :count], expected_v)


@pytest.mark.parametrize("page_size", [None, 8])
def test_inference_mode_may_begin_and_end_anywhere(page_size: int | None) -> None:
    inputs, modes = Inputs.random(60), (torch.inference_mode, torch.no_grad)
    for first in (0, 1):
        with modes[first]():
            cache, found = inputs.cache(SMALL, page_size=page_size), []
        for turn, (start, end) in enumerate([(0, 9), (9, 10), (10, 11), (11, 40), (40, 60)]):
            with modes[(first + turn) % 2]():
                found.append(inputs.between(start, end).decode(cache))
                cache.reorder([0, 1])
        torch.testing.assert_close(torch.cat(found, 1), inputs.whole(SMALL), rtol=0, atol=1e-12)


def test_it_grows_by_doubling_and_only_where_it_must() -> None:
    cache = NSACache(SMALL, 1, 1, 2, 2, capacity=4)
    window = cache.window.k
    sizes = []
    for _ in range(33):
        cache.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
        sizes.append(cache.capacity)
    assert sorted(set(sizes)) == [4, 8, 16, 32, 64]
    assert cache.window.k is window and window.shape[1] == SMALL.w
    held = cache.selected.k
    cache.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    assert cache.selected.k is held, "a buffer with room must not move"


def test_reset_begins_anew_in_the_same_buffers() -> None:
    inputs = Inputs.random(50)
    cache = inputs.cache(SMALL)
    first = fed(inputs, cache, [0, 20, 21, 50])
    held = cache.selected.k
    cache.reset()
    assert cache.empty and cache.lengths.tolist() == [0, 0] and cache.selected.k is held
    torch.testing.assert_close(fed(inputs, cache, [0, 1, 30, 50]), first, rtol=0, atol=1e-12)


def test_reorder_moves_whole_sequences() -> None:
    inputs = Inputs.random(60, batch=3)
    cache = inputs.cache(SMALL)
    inputs.rows([0, 0, 0], [40, 33, 50]).decode(cache, [40, 33, 50])
    order = [2, 2, 0, 1]
    cache.reorder(torch.tensor(order))
    assert cache.batch == 4 and cache.lengths.tolist() == [50, 50, 40, 33]
    expected = inputs.whole(SMALL)
    chosen = Inputs(*(pick(x, order) for x in (inputs.q, inputs.k, inputs.v, inputs.gates)))
    lengths = [50, 50, 40, 33]
    for _ in range(9):
        o = chosen.rows(lengths, [1] * 4).decode(cache)
        torch.testing.assert_close(
            o[:, 0], torch.stack([expected[b, t] for b, t in zip(order, lengths, strict=True)]), rtol=0, atol=1e-12
        )
        lengths = [length + 1 for length in lengths]


def pick(x: Tensor | tuple[Tensor, ...], order: list[int]) -> Tensor | tuple[Tensor, ...]:
    return x[order] if isinstance(x, Tensor) else tuple(y[order] for y in x)


def test_to_changes_the_dtype_in_place() -> None:
    inputs = Inputs.random(50)
    cache = inputs.cache(SMALL)
    fed(inputs, cache, [0, 40])
    assert cache.to(dtype=torch.float32) is cache
    single = Inputs.random(50, dtype=torch.float32)
    torch.testing.assert_close(
        fed(single, cache, [40, 41, 50]), inputs.whole(SMALL)[:, 40:].float(), rtol=1e-5, atol=1e-5
    )
    assert cache.to("cpu").lengths.tolist() == [50, 50]
    assert cache.to(torch.float16).selected.k.dtype == torch.float16  # as a module is told


def test_appending_keeps_no_graph() -> None:
    k = torch.randn(1, 4, 1, 2, requires_grad=True)
    cache = NSACache(SMALL, 1, 1, 2, 2)
    cache.append(k, k)
    assert not cache.selected.k.requires_grad


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"dk": 0}, {"capacity": 0}])
def test_sizes_of_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        NSACache(SMALL, **{"batch": 1, "n_kv_heads": 1, "dk": 2, "dv": 2, "capacity": 4, **wrong})


def test_reorder_and_undo_refuse_what_they_cannot_do() -> None:
    cache = NSACache(SMALL, 2, 1, 2, 2)
    with pytest.raises(ValueError, match="from 0 to 1"):
        cache.reorder([0, 2])
    with pytest.raises(ValueError, match="undo needs a step"):
        cache.undo()
    cache.append(torch.zeros(2, 3, 1, 2), torch.zeros(2, 3, 1, 2))
    with pytest.raises(ValueError, match="undo needs a step"):
        cache.undo()
