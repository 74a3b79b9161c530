"""Decode equals prefill: any way of cutting a sequence gives the outputs of the whole."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsa import NSACache, NSAConfig, blocks, flags, ops, reference, routing
from nsa.tests import testing
from nsa.tests.decoding import ODD, SMALL, Inputs, fed

EXACT = {"rtol": 0.0, "atol": 1e-12}


@pytest.mark.parametrize("config", [SMALL, ODD], ids=["small", "odd"])
@pytest.mark.parametrize("prefill", [0, 1, 7, 8, 63, 64])
def test_prefill_and_steps_equal_the_whole(config: NSAConfig, prefill: int) -> None:
    """prefill(S) + k steps = prefill(S + k), and every step reads exactly what the formula says."""
    total = prefill + 200
    inputs = Inputs.random(total)
    cache = inputs.cache(config)
    found = [inputs.between(0, prefill).decode(cache)] if prefill else []
    for t in range(prefill, total):
        found.append(inputs.between(t, t + 1).decode(cache))
        assert cache.reads is not None and cache.reads.tolist() == [blocks.reads_expected(t, config)] * 2
    torch.testing.assert_close(torch.cat(found, 1), inputs.whole(config), **EXACT)
    assert cache.lengths.tolist() == [total, total]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.sampled_from([SMALL, ODD]))
def test_any_chunks_equal_the_whole(sizes: list[int], config: NSAConfig) -> None:
    borders = [0, *torch.tensor(sizes).cumsum(0).tolist()]
    inputs = Inputs.random(borders[-1])
    torch.testing.assert_close(fed(inputs, inputs.cache(config), borders), inputs.whole(config), **EXACT)


@pytest.mark.parametrize("page_size", [None, 120])
@pytest.mark.parametrize("config", [SMALL, ODD], ids=["small", "odd"])
def test_the_oracle_decodes_too(config: NSAConfig, page_size: int | None) -> None:
    """Chunks, steps and padding through a cache of its own, which it fills as decode fills another."""
    inputs = Inputs.random(60)
    caches = [inputs.cache(config, page_size=page_size) for _ in range(2)]
    lengths, parts = [0, 0], []
    for counts in ([0, 3], [14, 14], [1, 1], [0, 1], [20, 1], [25, 1]):
        x = inputs.rows(lengths, counts)
        o = reference.nsa_decode(x.q, x.k, x.v, x.gates, caches[0], counts=counts)
        torch.testing.assert_close(o, x.decode(caches[1], counts), **EXACT)
        parts.append(o[0, : counts[0]])
        lengths = [length + count for length, count in zip(lengths, counts, strict=True)]
        assert caches[0].lengths.tolist() == caches[1].lengths.tolist() == lengths
    torch.testing.assert_close(torch.cat(parts), inputs.whole(config)[0], **EXACT)


@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("seed", range(4))
def test_sequences_of_different_lengths(seed: int, page_size: int | None) -> None:
    """Each entry takes its own number of tokens each time; padding gives 0 and changes nothing."""
    source = random.Random(seed)
    inputs = Inputs.random(180, batch=3)
    cache, expected = inputs.cache(SMALL, page_size=page_size), inputs.whole(SMALL)
    lengths = [0, 0, 0]
    while min(lengths) < 150:
        width = source.choice([1, 1, 1, 5, 29])
        counts = [source.randint(0, min(width, 180 - length)) for length in lengths]
        counts[source.randrange(3)] = min(width, 180 - max(lengths))
        if not any(counts):
            continue
        o = inputs.rows(lengths, counts).decode(cache, counts)
        for b, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            torch.testing.assert_close(o[b, :count], expected[b, length : length + count], **EXACT)
            assert o[b, count:].eq(0).all()
        lengths = [length + count for length, count in zip(lengths, counts, strict=True)]
        assert cache.lengths.tolist() == lengths


def test_reads_of_different_lengths() -> None:
    inputs = Inputs.random(100, batch=3)
    cache = inputs.cache(SMALL)
    inputs.rows([0, 0, 0], [70, 3, 31]).decode(cache, [70, 3, 31])
    assert cache.reads is None, "a chunk counts no reads"
    inputs.rows([70, 3, 31], [1, 1, 1]).decode(cache)
    assert cache.reads is not None
    assert cache.reads.tolist() == [blocks.reads_expected(t, SMALL) for t in (70, 3, 31)]
    assert cache.branch_reads is not None
    assert cache.branch_reads[1].tolist() == [[0, 4, 4]] * 2


@pytest.mark.parametrize("tokens, expected", [(512, 1055), (1024, 1599), (2048, 1663), (4096, 1791)])
def test_the_seeds_reads(tokens: int, expected: int) -> None:
    """The seeds' table: 1091 counted against 1571, 1603, 1667 and 1795 expected; both were wrong."""
    config = NSAConfig()
    cache = NSACache(config, 1, 2, 4, 4)
    k = torch.randn(1, tokens, 2, 4)
    cache.append(k[:, 1:], k[:, 1:])
    ops.nsa_decode(k[:, :1], k[:, :1], k[:, :1], torch.ones(1, 1, 2, 3), cache)
    assert cache.reads is not None
    assert cache.reads.tolist() == [expected] == [blocks.reads_expected(tokens - 1, config)]


def test_chunks_and_steps_take_their_scale() -> None:
    inputs, cache, how = Inputs.random(90), Inputs.random(1).cache(SMALL), {"scale": 0.9}
    pieces = [inputs.between(0, 70), *(inputs.between(t, t + 1) for t in range(70, 90))]
    found = [ops.nsa_decode(x.q, x.k, x.v, x.gates, cache, **how) for x in pieces]
    whole = ops.nsa_attention(inputs.q, inputs.k, inputs.v, inputs.gates, SMALL, **how)
    torch.testing.assert_close(torch.cat(found, 1), whole, **EXACT)
    last = pieces[-1]
    again = ops.cached_attention(last.q, last.gates, cache, **how)[0]
    torch.testing.assert_close(again, whole[:, -1:], **EXACT)


def test_a_branch_alone_is_its_part_of_the_sum() -> None:
    inputs = Inputs.random(90)
    cache = inputs.cache(SMALL)
    fed(inputs, cache, [0, 89])
    last = inputs.between(89, 90)
    whole = last.decode(cache)
    _, chosen = ops.cached_attention(last.q, last.gates, cache)
    parts = [
        ops.cached_attention(last.q, last.gates, cache, branches=[name], block_indices=chosen)[0]
        for name in ("cmp", "sel", "win")
    ]
    torch.testing.assert_close(sum(parts), whole, **EXACT)
    assert all(part.abs().sum() > 0 for part in parts)
    ops.cached_attention(last.q, last.gates, cache, branches=["win"], block_indices=chosen)
    assert cache.branch_reads is not None and cache.branch_reads[0].tolist() == [[0, 0, SMALL.w]] * 2


def test_an_undone_step_repeats_exactly() -> None:
    inputs = Inputs.random(70)
    cache = inputs.cache(SMALL)
    fed(inputs, cache, [0, 63])
    first = inputs.between(63, 64).decode(cache)
    cache.undo()
    assert cache.lengths.tolist() == [63, 63]
    assert torch.equal(inputs.between(63, 64).decode(cache), first)
    torch.testing.assert_close(fed(inputs, cache, [64, 65, 70]), inputs.whole(SMALL)[:, 64:], **EXACT)


@pytest.mark.parametrize("config", [SMALL, ODD, NSAConfig(l=8, d=4, l_sel=8, n_sel=4, w=1)])
@pytest.mark.parametrize("page_size", [None, 120])
def test_an_undone_step_leaves_later_tokens_right(config: NSAConfig, page_size: int | None) -> None:
    """Whatever the undone token was, for chunks of any length, of sequences that stand anywhere."""
    inputs, size = Inputs.random(90), None if page_size is None else page_size * config.d
    expected, lengths = inputs.whole(config), [0, 0]
    cache = NSACache(config, 2, 2, 8, 6, capacity=5, dtype=torch.float64, page_size=size)
    for counts in ([5, 0], [2, 17], [13, 1], [1, 1], [9, 9]):
        other = inputs.rows([length + 30 for length in lengths], [1, 1])
        other.decode(cache, [1, counts[1] % 2])
        cache.undo()
        o = inputs.rows(lengths, counts).decode(cache, counts)
        for b, count in enumerate(counts):
            torch.testing.assert_close(o[b, :count], expected[b, lengths[b] : lengths[b] + count], **EXACT)
        lengths = [length + count for length, count in zip(lengths, counts, strict=True)]


def test_the_last_token_is_not_asked_for_what_an_undone_step_overwrote() -> None:
    inputs = Inputs.random(SMALL.w + 2)
    cache = inputs.cache(SMALL)
    fed(inputs, cache, [0, SMALL.w - 1])
    for t in (SMALL.w - 1, SMALL.w):
        last = inputs.between(t - 1, t)
        before, _ = ops.cached_attention(last.q, last.gates, cache)
        inputs.between(t + 1, t + 2).decode(cache)
        cache.undo()
        if t < SMALL.w:  # the window had room
            assert torch.equal(ops.cached_attention(last.q, last.gates, cache)[0], before)
        else:  # whatever happens to the cache, until each sequence has a new token
            inputs.rows([t + 1, 0], [1, 0]).decode(cache, [1, 0])
            for change in (lambda: None, lambda: cache.reorder([0, 1]), cache.to):
                change()
                with pytest.raises(ValueError, match="after undo the window lacks a key"):
                    ops.cached_attention(last.q, last.gates, cache)
            cache.reorder([0, 0])
            ops.cached_attention(last.q, last.gates, cache)
            break
        inputs.between(t, t + 1).decode(cache)


def test_low_precision_stays_near_the_oracle() -> None:
    inputs = Inputs.random(120, dtype=torch.bfloat16)
    cache = inputs.cache(SMALL)
    fed(inputs, cache, [0, 100])
    for t in range(100, 110):
        with flags.using(debug_compare=True), routing.record() as recording:
            inputs.between(t, t + 1).decode(cache)
        error = recording.of("decode")[0].mean_abs_error
        assert error is not None and error < 0.01


def test_decode_is_recorded_as_decode() -> None:
    inputs = Inputs.random(20)
    cache = inputs.cache(SMALL)
    with testing.expect_route(decode="torch", compressed="torch", selected="torch", window="torch"):
        fed(inputs, cache, [0, 10, 19, 20])


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"q": torch.zeros(2, 1, 3, 8)}, "must be a multiple of Hkv"),
        ({"k": torch.zeros(2, 1, 2, 7)}, "k must have the shape"),
        ({"v": (torch.zeros(2, 1, 2, 6),) * 2}, "triple"),
        ({"k": torch.zeros(2, 1, 2, 8, dtype=torch.float16)}, "dtype and device"),
        ({"gates": torch.zeros(2, 1, 4, 2)}, "gates must have the shape"),
        ({"counts": [1]}, "counts must be 2 integers"),
        ({"counts": [1, 2]}, "from 0 to 1"),
    ],
)
def test_refusals_leave_the_cache_alone(change: dict[str, object], sentence: str) -> None:
    cache = NSACache(SMALL, 2, 2, 8, 6)
    given = {
        "q": torch.zeros(2, 1, 4, 8),
        "k": torch.zeros(2, 1, 2, 8),
        "v": torch.zeros(2, 1, 2, 6),
        "gates": torch.zeros(2, 1, 4, 3),
    }
    with pytest.raises(ValueError, match=sentence):
        ops.nsa_decode(**{**given, **change}, cache=cache)
    assert cache.empty


@pytest.mark.parametrize("before", [0, 40])
def test_a_chunk_that_is_refused_leaves_the_cache(before: int) -> None:
    inputs = Inputs.random(80)
    cache = inputs.cache(SMALL)
    if before:
        inputs.between(0, before).decode(cache)
    chunk = inputs.between(before, before + 30)
    strict = {"backend": {"combine": "cuda"}, "strict": True}  # the last operation: all others have run
    with pytest.raises((routing.RoutingError, ValueError)):
        ops.nsa_decode(chunk.q, chunk.k, chunk.v, chunk.gates, cache, **strict)
    assert cache.lengths.tolist() == [before, before]
    found = torch.cat([chunk.decode(cache), inputs.between(before + 30, 80).decode(cache)], 1)
    torch.testing.assert_close(found, inputs.whole(SMALL)[:, before:], **EXACT)


def test_a_step_that_fails_leaves_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = Inputs.random(30)
    cache = inputs.cache(SMALL)
    inputs.between(0, 20).decode(cache)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no room"):
        patch.setattr("nsa.fallback.decoding.decode", fails)
        inputs.between(20, 21).decode(cache)
    assert cache.lengths.tolist() == [20, 20]
    torch.testing.assert_close(fed(inputs, cache, [*range(20, 31)]), inputs.whole(SMALL)[:, 20:], **EXACT)


def test_steps_without_a_token() -> None:
    inputs = Inputs.random(1)
    cache = inputs.cache(SMALL)
    with flags.using(debug_compare=True):
        assert inputs.decode(cache, [0, 0]).eq(0).all() and cache.lengths.tolist() == [0, 0]
        assert inputs.decode(cache, [1, 0])[1].eq(0).all() and cache.lengths.tolist() == [1, 0]
    empty = inputs.between(0, 0)
    assert empty.decode(cache).shape == (2, 0, 4, 6) and cache.lengths.tolist() == [1, 0]
