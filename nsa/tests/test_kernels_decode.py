"""The decode kernels against the oracle: any lengths, pages, learned compression."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nsa import NativeSparseAttention, NSACache, NSAConfig, blocks, flags, ops, reference, routing
from nsa.kernels.decode import step
from nsa.kernels.decode.plan import parts_of
from nsa.kernels.selection.scores import sums_blocks
from nsa.routing.record import paused
from nsa.tests import testing
from nsa.tests.decode_cases import ON_TRITON, cache_for, drawn, mapped, oracle, stepped
from nsa.tests.decoding import ODD, SMALL, Inputs
from nsa.tests.kernel_cases import DEVICE, DTYPES, SLOW

TIES = NSAConfig(l=8, d=8, l_sel=8, n_sel=3, w=5, init_blocks=0, local_blocks=1)
FINE = NSAConfig(l=10, d=1, l_sel=4, n_sel=6, w=30)
"""13 compressed tokens overlap a block: more than are summed at once."""
FAR = NSAConfig(l=15, d=5, l_sel=10, n_sel=4, w=13)
"""A compressed token overlaps up to three blocks."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("config", "shape", "times"),
    [
        pytest.param(SMALL, {"batch": 2}, (0, 7, 8, 11, 63), id="small"),
        pytest.param(ODD, {"heads": 3, "kv_heads": 1, "dk": 48, "dv": 80}, (11, 12, 14, 60), id="odd"),
        pytest.param(FINE, {"heads": 12}, (8, 9, 55), id="group-of-6"),
        pytest.param(SMALL, {"heads": 20, "kv_heads": 1}, (9, 41), id="group-of-20"),
        pytest.param(TIES, {"heads": 32, "dk": 16, "dv": 16}, (7, 8, 47), id="group-of-16"),
        pytest.param(FINE, {"heads": 65, "kv_heads": 1}, (9, 41), id="five-parts-of-13"),
        pytest.param(SMALL, {"batch": 2, "heads": 160}, (11, 47), id="two-parts-of-40"),
        pytest.param(ODD, {"heads": 96, "kv_heads": 1, "dk": 48, "dv": 80}, (14, 60), id="two-parts-of-48"),
        pytest.param(SMALL, {"heads": 256, "dk": 192, "dv": 128}, (15, 50), id="two-parts-of-64"),
    ],
)
def test_steps_equal_the_oracle(
    config: NSAConfig, shape: dict[str, int], times: tuple[int, ...], dtype: torch.dtype
) -> None:
    inputs = drawn(max(times) + 1, **shape, dtype=dtype)
    cache, expected = cache_for(inputs, config), oracle(inputs, config, list(times))
    begun = 0
    for index, t in enumerate(times):
        with paused():  # what fills the cache is not what is tested
            for before in range(begun, t):
                stepped(inputs, cache, before, backend="torch")
        with testing.expect_route(decode="triton"):
            o = stepped(inputs, cache, t)
        testing.assert_close(o[:, 0], expected[:, index], dtype, f"step {t}")
        assert cache.reads is not None and cache.reads.tolist() == [blocks.reads_expected(t, config)] * len(o)
        assert cache.lengths.tolist() == [t + 1] * len(o)
        begun = t + 1


def test_a_step_chooses_and_attends_with_its_scale() -> None:
    """Powers of two change no bit: so four times the queries at a quarter of the scale are the same step."""
    inputs, found = drawn(60, dtype=torch.float32), []
    for times, scale in ((1, 0.5), (4, 0.125)):
        cache, scaled = cache_for(inputs, SMALL), replace(inputs, q=times * inputs.q)
        with paused():
            chunk = inputs.between(0, 59)
            ops.nsa_decode(chunk.q, chunk.k, chunk.v, chunk.gates, cache, backend="torch")
        found.append(stepped(scaled, cache, 59, scale=scale, **ON_TRITON))
    assert torch.equal(*found)


@pytest.mark.parametrize("heads", [4, 136])
def test_sequences_of_different_lengths_in_pages_and_without(heads: int) -> None:
    """A sequence whose count is 0 keeps its state; pages change nothing, to the bit."""
    inputs = drawn(60, batch=3, heads=heads, dtype=torch.float32)
    starts = [40, 3, 21]
    caches = [cache_for(inputs, SMALL, page_size=size) for size in (None, 16)] + [cache_for(inputs, SMALL)]
    for cache in caches:
        first = inputs.rows([0, 0, 0], starts)
        ops.nsa_decode(first.q, first.k, first.v, first.gates, cache, counts=starts)
    plain, paged, judge = caches
    for counts in ([1, 1, 1], [0, 1, 0], [1, 0, 1]):
        one = inputs.rows(starts, counts)
        given = (one.q, one.k, one.v, one.gates)
        found = [ops.nsa_decode(*given, cache, counts=counts, **ON_TRITON) for cache in (plain, paged)]
        expected = ops.nsa_decode(*given, judge, counts=counts, backend="torch")
        assert torch.equal(*found)
        torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=1e-5)
        starts = [start + count for start, count in zip(starts, counts, strict=True)]
        assert plain.lengths.tolist() == paged.lengths.tolist() == starts
        assert plain.branch_reads is not None and judge.branch_reads is not None
        assert plain.branch_reads.tolist() == judge.branch_reads.tolist()


def test_keys_of_all_branches_and_of_each() -> None:
    """A step that was recorded where the branches' keys are one tensor stores no others'."""
    inputs = drawn(12, dtype=torch.float32)
    caches = [cache_for(inputs, SMALL, capacity=12) for _ in range(2)]
    for t in range(12):
        one = inputs.between(t, t + 1)
        k, v = (one.k[0], one.v[0]) if t < 6 else (one.k, one.v)
        found, expected = (
            ops.nsa_decode(one.q, k, v, one.gates, cache, backend=backend)
            for cache, backend in zip(caches, ("triton", "torch"), strict=True)
        )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_an_empty_sequence_beside_others_gives_zero() -> None:
    inputs = drawn(4, batch=2, dtype=torch.float32)
    cache = cache_for(inputs, SMALL)
    for t in range(2):
        o = stepped(inputs, cache, t, [1, 0])
        assert o[1].eq(0).all() and o[0].ne(0).all()
    assert cache.lengths.tolist() == [2, 0]
    assert cache.reads is not None and cache.reads.tolist() == [4, 0]


def test_fewer_lists_than_blocks_to_choose() -> None:
    """Lists are padded to a power of two; what is not there is never read."""
    config = NSAConfig(l=8, d=4, l_sel=4, n_sel=20, w=5)
    inputs = drawn(88, kv_heads=4, dtype=torch.float32)
    cache = cache_for(inputs, config, capacity=88)
    cache.append(inputs.k, inputs.v)
    last = inputs.between(87, 88)
    _, expected = ops.cached_attention(last.q, last.gates, cache, backend="torch")
    for _ in range(2):
        _, chosen = ops.cached_attention(last.q, last.gates, cache, **ON_TRITON)
        assert torch.equal(chosen, expected)
        for workspace in cache.workspaces.values():
            workspace.lists.fill_((0x7F000000 << 32) + 0x7FFFFFFF - 1)  # left by an earlier step: block 1, best


@pytest.mark.parametrize("page_size", [None, pytest.param(80, marks=SLOW)])
@pytest.mark.parametrize("config", [replace(SMALL, n_sel=9), replace(FAR, n_sel=9)], ids=["blocks", "tokens"])
@pytest.mark.parametrize("alike", [False, True], ids=["random", "ties"])
@pytest.mark.parametrize(
    "split",
    [
        {"lanes": 4, "among": 4, "few": 0},
        pytest.param({"lanes": 16, "among": 4, "few": 0}, marks=SLOW),
        {"lanes": 16, "among": 16, "few": 1 << 10},
        {"lanes": 32, "among": 2, "few": 0, "keys": 16, "splits": 5},
    ],
    ids=str,
)
def test_the_split_changes_no_choice(
    split: dict[str, int], alike: bool, config: NSAConfig, page_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of a program, lists of their best, and how these are merged; scores from sums of blocks or of tokens."""
    assert sums_blocks(config) == (config.l == 2 * config.d)
    inputs = drawn(230, dtype=torch.float32)
    if alike:
        inputs.k[0].zero_()
    plan_for = step.plan_for
    monkeypatch.setattr(step, "plan_for", lambda *given: replace(plan_for(*given), **split))
    monkeypatch.setattr(step, "TOKENS", 16)
    cache = cache_for(inputs, config, page_size=page_size)
    for begun, end in ((0, 60), (60, 230)):
        piece, last = inputs.between(begun, end), inputs.between(end - 1, end)
        cache.append(piece.k, piece.v)
        expected = ops.cached_attention(last.q, last.gates, cache, backend="torch")
        for _ in range(2):
            found = ops.cached_attention(last.q, last.gates, cache, **ON_TRITON)
            assert torch.equal(found[1], expected[1])
            torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [replace(SMALL, n_sel=9), replace(FAR, n_sel=9)], ids=["blocks", "tokens"])
@pytest.mark.parametrize("heads", [65, 128])
def test_all_parts_of_a_group_choose_together(heads: int, config: NSAConfig) -> None:
    """Each part alone would choose other blocks, and the first alone those that its heads look for."""
    inputs = drawn(230, heads=heads, kv_heads=1, dtype=torch.float32)
    parts, last = parts_of(heads), inputs.between(229, 230)
    assert parts > 1
    cache = cache_for(inputs, config)
    cache.append(inputs.k, inputs.v)
    found = ops.cached_attention(last.q, last.gates, cache, **ON_TRITON)
    expected = ops.cached_attention(last.q, last.gates, cache, backend="torch")
    assert torch.equal(found[1], expected[1])
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    reads = [blocks.reads_expected(229, config)]
    assert cache.reads is not None and cache.reads.tolist() == reads
    for q, gates in zip(last.q.chunk(parts, 2), last.gates.chunk(parts, 2), strict=True):
        _, alone = ops.cached_attention(q.contiguous(), gates, cache, backend="torch")
        assert not torch.equal(alone, expected[1])


@pytest.mark.parametrize("heads", [4, 256])
def test_ties_go_to_the_lower_block(heads: int) -> None:
    config = replace(SMALL, n_sel=5)
    inputs = drawn(80, heads=heads, dtype=torch.float32)
    inputs.k[0].zero_()  # every compressed key alike
    cache = cache_for(inputs, config)
    last = inputs.between(79, 80)
    cache.append(*(tuple(x[:, :80] for x in triple) for triple in (inputs.k, inputs.v)))
    _, chosen = ops.cached_attention(last.q, last.gates, cache, **ON_TRITON)
    assert chosen.flatten(0, 2).tolist() == [[0, 1, 2, 8, 9]] * 2


@pytest.mark.parametrize("config", [replace(SMALL, n_sel=12), replace(FAR, n_sel=12)], ids=["blocks", "tokens"])
@pytest.mark.parametrize("seed", [4, 9, 16, 20])
def test_ties_beside_a_block_that_stands_out(config: NSAConfig, seed: int) -> None:
    """Equal blocks tie wherever the largest logit is met: the tile and the part that they are in do not matter."""
    inputs, source = drawn(230, heads=8, dtype=torch.float32), torch.Generator().manual_seed(seed)
    last = inputs.between(229, 230)
    last.q.copy_(torch.randn(last.q.shape, generator=source))
    keys, at = inputs.k[0], int(torch.randint(5, 200, (1,), generator=source))
    keys.zero_()[:, at] = 4 * torch.randn(keys[:, at].shape, generator=source)
    cache = cache_for(inputs, config)
    cache.append(inputs.k, inputs.v)
    _, chosen = ops.cached_attention(last.q, last.gates, cache, **ON_TRITON)
    _, expected = ops.cached_attention(last.q, last.gates, cache, backend="torch")
    assert torch.equal(chosen, expected)


@pytest.mark.parametrize("config", [replace(SMALL, n_sel=9), replace(FAR, n_sel=9)], ids=["blocks", "tokens"])
@pytest.mark.parametrize("shift", [-300.0, -40.0, 40.0, 300.0])
def test_scores_of_logits_of_any_size(config: NSAConfig, shift: float) -> None:
    """All logits of a head far above or below 0, and what they differ by still counts."""
    inputs = drawn(230, heads=2, kv_heads=1, dtype=torch.float32)
    last = inputs.between(229, 230)
    last.q[..., 0] = shift
    inputs.k[0][..., 0] = 4.0  # over the square root of 16 dimensions: the logits are shifted by just this
    cache = cache_for(inputs, config)
    cache.append(inputs.k, inputs.v)
    found = ops.cached_attention(last.q, last.gates, cache, **ON_TRITON)
    expected = ops.cached_attention(last.q, last.gates, cache, backend="torch")
    assert torch.equal(found[1], expected[1])
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("page_size", [None, 16])
def test_a_branch_alone_and_given_blocks(page_size: int | None) -> None:
    inputs = drawn(50, dtype=torch.float32)
    cache = cache_for(inputs, SMALL, page_size=page_size)
    cache.append(inputs.k, inputs.v)
    last = inputs.between(49, 50)
    whole, chosen = ops.cached_attention(last.q, last.gates, cache, **ON_TRITON)
    _, expected = ops.cached_attention(last.q, last.gates, cache, backend="torch")
    assert torch.equal(chosen, expected)
    shuffled = torch.cat([chosen.flip(-1), torch.full_like(chosen[..., :1], -1)], dim=-1)
    parts = []
    for number, name in enumerate(("cmp", "sel", "win")):
        how = {"branches": [name], "block_indices": shuffled}
        parts.append(ops.cached_attention(last.q, last.gates, cache, **how, **ON_TRITON)[0])
        assert cache.branch_reads is not None and (cache.branch_reads[..., number] > 0).all()
        ops.cached_attention(last.q, last.gates, cache, **how, backend="torch")
    torch.testing.assert_close(sum(parts), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("phi", "page_size"), [("mean", None), ("mlp", None), ("mlp", 16)])
def test_a_layer_decodes_as_it_prefills(phi: str, page_size: int | None) -> None:
    """Rotated means are made by the kernel, learned maps before it; both equal the whole sequence's."""
    layer = NativeSparseAttention(32, 4, 2, SMALL, dk=16, dv=16, phi=phi).to(DEVICE).requires_grad_(False)
    x = torch.randn(1, 31, 32, device=DEVICE)
    cache, expected = layer.new_cache(1, 16, page_size=page_size), layer(x)
    layer(x[:, :27], cache)
    layer.backend = {"decode": "triton"}
    for t in range(27, 30):  # a compressed token appears
        with testing.expect_route(decode="triton"):
            o = layer(x[:, t : t + 1], cache)
        torch.testing.assert_close(o, expected[:, t : t + 1], rtol=1e-5, atol=1e-5)


def test_an_undone_step_repeats_exactly() -> None:
    inputs = drawn(20, dtype=torch.float32)
    cache = cache_for(inputs, SMALL)
    cache.append(*(tuple(x[:, :15] for x in triple) for triple in (inputs.k, inputs.v)))
    first = stepped(inputs, cache, 15)  # emits
    cache.undo()
    assert torch.equal(stepped(inputs, cache, 15), first)


@pytest.mark.parametrize("page_size", [None, 16])
def test_a_cache_grows_between_steps_that_were_recorded(page_size: int | None) -> None:
    """What was recorded names the buffers that were there."""
    inputs = drawn(24, dtype=torch.float32)
    cache = cache_for(inputs, SMALL, capacity=16, page_size=page_size)
    cache.append(*(tuple(x[:, :12] for x in triple) for triple in (inputs.k, inputs.v)))
    found, times = [], list(range(12, 22))
    for t in times:
        found.append(stepped(inputs, cache, t))
        assert cache.reads is not None and cache.reads.tolist() == [blocks.reads_expected(t, SMALL)]
    assert cache.capacity > 16 and any(callable(x) for plan in cache.plans.values() for x in plan.recorded.values())
    testing.assert_close(torch.cat(found, 1), oracle(inputs, SMALL, times), torch.float32, "steps")


# --- pages ---


def test_pages_are_taken_as_sequences_grow_and_given_back() -> None:
    inputs = drawn(70, batch=2, dtype=torch.float32)
    cache = cache_for(inputs, SMALL, capacity=64, page_size=16)
    assert cache.pages is not None
    table = cache.pages.table
    first = inputs.rows([0, 0], [40, 5])
    cache.append(first.k, first.v, counts=[40, 5])
    assert (cache.pages.table >= 0).sum(1).tolist() == [3, 1]
    held = cache.pages.count
    cache.reset()
    cache.append(first.k, first.v, counts=[40, 5])
    assert cache.pages.count == held and cache.pages.table is table, "pages are used again, the table stays"
    cache.reserve(70)
    assert (cache.pages.table >= 0).sum(1).tolist() == [5, 5]


def test_pages_read_as_rows_do() -> None:
    """Chunks, steps, reorder and growth on PyTorch: the paged cache is the contiguous one."""
    inputs = drawn(90, batch=2, dtype=torch.float64)
    plain, paged = (cache_for(inputs, ODD, page_size=size) for size in (None, 30))
    for start, end in ((0, 33), (33, 34), (34, 35), (35, 89)):
        piece = inputs.between(start, end)
        found = [
            ops.nsa_decode(piece.q, piece.k, piece.v, piece.gates, cache, backend="torch") for cache in (plain, paged)
        ]
        torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    for cache in (plain, paged):
        cache.reorder([1, 0, 1])
    last = mapped(lambda x: x[[1, 0, 1]], inputs.between(89, 90))
    found = [ops.nsa_decode(last.q, last.k, last.v, last.gates, cache, backend="torch") for cache in (plain, paged)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_page_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"page_size must be a multiple of l_sel=8 and of d=4, got 12"):
        NSACache(SMALL, 1, 1, 2, 2, page_size=12)


# --- several new tokens ---


def continued(
    inputs: Inputs, config: NSAConfig, begun: list[int], *counts: list[int], page_size: int | None = None
) -> NSACache:
    """A cache of the first `begun` tokens of each sequence after steps of `counts` more: each equals the oracle's."""
    cache, judge = caches = [cache_for(inputs, config, page_size=page_size) for _ in range(2)]
    first = inputs.rows([0] * len(begun), begun)
    for one in caches:
        one.append(first.k, first.v, counts=begun)
    for count in counts:
        x = inputs.rows(begun, count)
        with testing.expect_route(decode="triton"):
            found = ops.nsa_decode(x.q, x.k, x.v, x.gates, cache, counts=count, **ON_TRITON)
        expected = reference.nsa_decode(x.q, x.k, x.v, x.gates, judge, counts=count)
        testing.assert_close(found, expected, inputs.q.dtype, f"{count} tokens after {begun}")
        begun = [before + more for before, more in zip(begun, count, strict=True)]
        assert cache.lengths.tolist() == judge.lengths.tolist() == begun
        assert all(map(torch.equal, cache.window.stored, judge.window.stored)), "the rings"
    return cache


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("config", "shape", "page_size"),
    [
        pytest.param(SMALL, {}, None, id="small"),
        pytest.param(ODD, {"heads": 3, "kv_heads": 1, "dk": 48, "dv": 80}, 30, id="odd-in-pages"),
        pytest.param(replace(FINE, w=7), {"heads": 2, "kv_heads": 1}, None, id="a-window-of-no-more"),
        pytest.param(SMALL, {"heads": 96, "kv_heads": 1, "dk": 192, "dv": 128}, 8, id="two-parts-of-48-in-pages"),
    ],
)
def test_several_tokens_equal_the_oracle(
    config: NSAConfig, shape: dict[str, int], page_size: int | None, dtype: torch.dtype
) -> None:
    """From nothing, and where the rings of window and compression have gone round; each sequence at its own pace."""
    inputs = drawn(60, batch=3, **shape, dtype=dtype)
    cache = continued(inputs, config, [0, 9, 43], [7, 0, 3], [5, 1, 5], page_size=page_size)
    assert cache.reads is None, "of several tokens none are counted"
    with pytest.raises(ValueError, match="undo needs a step of one token"):
        cache.undo()


def test_steps_of_one_token_and_of_several_follow_each_other() -> None:
    """Each token reads what it reads in a step of its own, counted where it is read, also beyond the second call."""
    inputs = drawn(90, batch=2, dtype=torch.float32)
    cache = continued(inputs, SMALL, [30, 61], *([4, 4], [1, 1], [4, 4], [4, 4], [1, 0], [4, 4]))
    (workspace,) = (x for (sizes, _), x in cache.workspaces.items() if sizes.tokens == 4)
    for length, reads in zip(cache.lengths.tolist(), workspace.reads.view(2, 4, 2, 3).sum(-1).tolist(), strict=True):
        assert reads == [[blocks.reads_expected(t, SMALL)] * 2 for t in range(length - 4, length)]
    assert any(callable(x) for plan in cache.plans.values() for x in plan.recorded.values())


@pytest.mark.parametrize("counts", [None, [3, 1]])
def test_several_tokens_are_compared_with_the_oracle_where_a_flag_asks(counts: list[int] | None) -> None:
    """Each of them, though it overwrites what the ones before it read."""
    inputs = drawn(40, batch=2, dtype=torch.float32)
    cache = cache_for(inputs, SMALL)
    with flags.using(debug_compare=True), routing.record() as recording:
        for first, end in ((0, 8), (8, 16), (16, 19)):
            x = inputs.between(first, end)
            ops.nsa_decode(x.q, x.k, x.v, x.gates, cache, counts=counts, **ON_TRITON)
    errors = [route.mean_abs_error for route in recording.of("decode")]
    assert len(errors) == 3 and all(error is not None and 0.0 < error < 1e-6 for error in errors)


def test_several_tokens_of_layouts_of_the_callers() -> None:
    """Cut from one projection, as they are: no axis but the last is where it would be in a tensor of its own."""
    inputs = drawn(20, batch=2, dtype=torch.float32)
    cache, judge = (cache_for(inputs, SMALL, capacity=20) for _ in range(2))
    for first, end in ((0, 6), (6, 9), (9, 17)):
        x = inputs.between(first, end)
        parts = torch.cat([x.q, *x.k, *x.v], 2).transpose(1, 2).contiguous().transpose(1, 2).split([4, *6 * [2]], 2)
        gates = x.gates.transpose(1, 3).contiguous().transpose(1, 3)
        found = ops.nsa_decode(parts[0], parts[1:4], parts[4:], gates, cache, **ON_TRITON)
        testing.assert_close(found, reference.nsa_decode(x.q, x.k, x.v, x.gates, judge), torch.float32, "cut")


@pytest.mark.parametrize("tokens", [2, 8])
def test_a_layer_takes_several_tokens_at_once(tokens: int) -> None:
    """Rotated means that these tokens complete, some of which they see already."""
    layer = NativeSparseAttention(32, 4, 2, SMALL, dk=16, dv=16).to(DEVICE).requires_grad_(False)
    x = torch.randn(2, 43, 32, device=DEVICE)
    cache, expected = layer.new_cache(2, 16), layer(x)
    layer(x[:, :19], cache)
    layer.backend = {"decode": "triton"}
    for t in range(19, 43, tokens):
        with testing.expect_route(decode="triton"):
            o = layer(x[:, t : t + tokens], cache)
        torch.testing.assert_close(o, expected[:, t : t + tokens], rtol=1e-5, atol=1e-5)


def test_what_no_step_takes_at_once_is_a_chunk() -> None:
    """More tokens than a step has or than the window holds, a learned compression, and a part asked of another."""
    inputs = drawn(40, dtype=torch.float32)
    learned = NativeSparseAttention(32, 4, 2, SMALL, dk=16, dv=16, phi="mlp").to(DEVICE).new_cache(1, 40)
    narrow = replace(SMALL, w=3)
    cases = [
        (cache_for(inputs, SMALL), 9, "triton"),
        (cache_for(inputs, narrow), 4, "triton"),
        (learned, 4, "triton"),
        (cache_for(inputs, SMALL), 4, {"decode": "triton", "window": "torch"}),
    ]
    for cache, tokens, backend in cases:
        x = inputs.between(0, tokens)
        with routing.record() as recording:
            ops.nsa_decode(x.q, x.k, x.v, x.gates, cache, backend=backend)
        assert not recording.of("decode") and recording.of("window")


@pytest.mark.parametrize("kernel", ["_select", "_combine"])
@pytest.mark.parametrize("tokens", [1, 4])
def test_a_step_that_fails_after_others_have_appended_leaves_the_cache(
    tokens: int, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a kernel does not compile: the lengths count on in the second, new tokens overwrite the rings' rows."""
    inputs = drawn(60, batch=2, dtype=torch.float32)
    cache = continued(inputs, SMALL, [20, 33], [tokens, tokens])
    cache.plans.clear()  # the step that fails is to be the first of its kind
    expected = continued(inputs, SMALL, [20, 33], [tokens, tokens])
    x = inputs.rows([20 + tokens, 33 + tokens], [tokens, tokens])

    def fails(*_: object) -> None:
        raise RuntimeError("out of resources")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="out of resources"):
        patch.setattr(step._Step, kernel, fails)
        ops.nsa_decode(x.q, x.k, x.v, x.gates, cache, **ON_TRITON)
    assert cache.lengths.tolist() == [20 + tokens, 33 + tokens]
    assert all(map(torch.equal, cache.window.stored, expected.window.stored)), "the rings"
    found = (ops.nsa_decode(x.q, x.k, x.v, x.gates, one, **ON_TRITON) for one in (cache, expected))
    assert torch.equal(*found)
