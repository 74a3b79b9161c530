"""The decode kernels against the oracle: any lengths, pages, learned compression, and inside a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import NativeSparseAttention, NSACache, NSAConfig, blocks, ops, reference, testing
from nsa.tests.decoding import ODD, SMALL, Inputs
from nsa.tests.kernel_cases import DEVICE, DTYPES

pytest.importorskip("triton")
ON_TRITON = {"backend": "triton", "strict": True}
TIES = NSAConfig(l=8, d=8, l_sel=8, n_sel=3, w=5, init_blocks=0, local_blocks=1)
FINE = NSAConfig(l=10, d=1, l_sel=4, n_sel=6, w=30)
"""13 compressed tokens overlap a block: more than are summed at once."""


def drawn(
    tokens: int, *, batch: int = 1, heads: int = 4, kv_heads: int = 2, dk: int = 16, dv: int = 16, dtype: torch.dtype
) -> Inputs:
    source = torch.Generator().manual_seed(tokens)

    def normal(count: int, dim: int) -> Tensor:
        x = torch.randn(batch, tokens, count, dim, generator=source, dtype=torch.float64)
        return x.to(DEVICE, dtype)

    def triple(dim: int) -> tuple[Tensor, Tensor, Tensor]:
        return normal(kv_heads, dim), normal(kv_heads, dim), normal(kv_heads, dim)

    return Inputs(normal(heads, dk), triple(dk), triple(dv), normal(heads, 3).sigmoid())


def cache_for(inputs: Inputs, config: NSAConfig, *, capacity: int = 5, page_size: int | None = None) -> NSACache:
    (batch, _, kv_heads, dk), dv = inputs.k[0].shape, inputs.v[0].shape[-1]
    like = {"dtype": inputs.q.dtype, "device": inputs.q.device}
    return NSACache(config, batch, kv_heads, dk, dv, capacity=capacity, page_size=page_size, **like)


def mapped(change: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    k, v = (tuple(change(x) for x in triple) for triple in (inputs.k, inputs.v))
    return Inputs(change(inputs.q), k, v, change(inputs.gates))


def tensors(inputs: Inputs) -> tuple[Tensor, ...]:
    return inputs.q, *inputs.k, *inputs.v, inputs.gates


def stepped(inputs: Inputs, cache: NSACache, t: int, counts: list[int] | None = None, **how: object) -> Tensor:
    one = inputs.between(t, t + 1)
    return ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, counts=counts, **(how or ON_TRITON))


def oracle(inputs: Inputs, config: NSAConfig, rows: list[int]) -> Tensor:
    wide = mapped(Tensor.double, inputs)
    return reference.nsa_attention(wide.q, wide.k, wide.v, wide.gates, config, rows=rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("config", "shape", "times"),
    [
        pytest.param(SMALL, {"batch": 2}, (0, 7, 8, 11, 63), id="small"),
        pytest.param(ODD, {"heads": 3, "kv_heads": 1, "dk": 48, "dv": 80}, (11, 12, 14, 60), id="odd"),
        pytest.param(FINE, {"heads": 12}, (8, 9, 55), id="group-of-6"),
        pytest.param(TIES, {"heads": 32, "dk": 16, "dv": 16}, (7, 8, 47), id="group-of-16"),
    ],
)
def test_steps_equal_the_oracle(
    config: NSAConfig, shape: dict[str, int], times: tuple[int, ...], dtype: torch.dtype
) -> None:
    inputs = drawn(max(times) + 1, **shape, dtype=dtype)
    cache, expected = cache_for(inputs, config), oracle(inputs, config, list(times))
    begun = 0
    for index, t in enumerate(times):
        for before in range(begun, t):
            stepped(inputs, cache, before, backend="torch")
        with testing.expect_route(decode="triton"):
            o = stepped(inputs, cache, t)
        testing.assert_close(o[:, 0], expected[:, index], dtype, f"step {t}")
        assert cache.reads is not None and cache.reads.tolist() == [blocks.reads_expected(t, config)] * len(o)
        assert cache.lengths.tolist() == [t + 1] * len(o)
        begun = t + 1


def test_sequences_of_different_lengths_in_pages_and_without() -> None:
    """A sequence whose count is 0 keeps its state; pages change nothing, to the bit."""
    inputs = drawn(60, batch=3, dtype=torch.float32)
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
        for scratch in cache.scratch.values():
            scratch.lists.fill_((0x7F000000 << 32) + 0x7FFFFFFF - 1)  # left by an earlier step: block 1, best


def test_ties_go_to_the_lower_block() -> None:
    config = replace(SMALL, n_sel=5)
    inputs = drawn(80, dtype=torch.float32)
    inputs.k[0].zero_()  # every compressed key alike
    cache = cache_for(inputs, config)
    last = inputs.between(79, 80)
    cache.append(*(tuple(x[:, :80] for x in triple) for triple in (inputs.k, inputs.v)))
    _, chosen = ops.cached_attention(last.q, last.gates, cache, **ON_TRITON)
    assert chosen.flatten(0, 2).tolist() == [[0, 1, 2, 8, 9]] * 2


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


# --- on a GPU ---


@pytest.fixture
def gpu() -> Iterator[None]:
    testing.need_cuda(None, "")
    yield


@pytest.mark.cuda
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("page_size", [None, 128])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dk", "dv"), [(64, 4, 128, 128), (32, 8, 128, 128), (16, 2, 192, 128), (4, 4, 256, 256)]
)
def test_a_captured_step_equals_the_oracle(heads: int, kv_heads: int, dk: int, dv: int, page_size: int | None) -> None:
    """Replays append by themselves: outputs of the oracle, reads of the formula, lengths that count on."""
    config, begun, replays = NSAConfig(), [2100, 1171, 40], 40
    inputs = drawn(max(begun) + replays, batch=3, heads=heads, kv_heads=kv_heads, dk=dk, dv=dv, dtype=torch.bfloat16)
    cache = cache_for(inputs, config, capacity=begun[0] + replays, page_size=page_size)
    first = inputs.rows([0, 0, 0], begun)
    cache.append(first.k, first.v, counts=begun)
    cache.reserve(begun[0] + replays)
    one = inputs.rows(begun, [1, 1, 1])
    ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, **ON_TRITON)  # compiles
    cache.undo()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), testing.expect_route(decode="triton", device="cuda"):
        o = ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, **ON_TRITON)
    assert cache.lengths.tolist() == begun
    for step in range(replays):
        at = [length + step for length in begun]
        for held, new in zip(tensors(one), tensors(inputs.rows(at, [1, 1, 1])), strict=True):
            held.copy_(new)
        graph.replay()
        cache.advance()
        assert cache.reads is not None and cache.reads.tolist() == [blocks.reads_expected(t, config) for t in at]
        if step in (0, 20, replays - 1):
            for b, t in enumerate(at):
                expected = oracle(mapped(lambda x, b=b, t=t: x[b : b + 1, : t + 1], inputs), config, [t])
                testing.assert_close(o[b : b + 1], expected, torch.bfloat16, f"sequence {b} at {t}")
    assert cache.lengths.tolist() == [length + replays for length in begun]


@pytest.mark.cuda
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("phi", ["mean", "mlp"])
def test_a_captured_layer_follows_the_eager_one(phi: str) -> None:
    layer = NativeSparseAttention(64, 8, 2, SMALL, dk=32, dv=16, phi=phi).to("cuda").requires_grad_(False)
    x = torch.randn(2, 90, 64, device="cuda")
    cache, expected = layer.new_cache(2, 96), layer(x)
    layer(x[:, :60], cache)
    static = x[:, 60:61].clone()
    layer(static, cache)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = layer(static, cache)
    for t in range(61, 90):
        static.copy_(x[:, t : t + 1])
        graph.replay()
        cache.advance()
        torch.testing.assert_close(o, expected[:, t : t + 1], rtol=1e-4, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.usefixtures("gpu")
def test_a_step_never_waits_and_never_writes_beyond_its_room() -> None:
    inputs = drawn(40, batch=2, heads=8, kv_heads=2, dk=32, dv=32, dtype=torch.float16)
    cache = cache_for(inputs, SMALL, capacity=32)
    steps = [inputs.between(t, t + 1) for t in range(32)]
    ops.nsa_decode(steps[0].q, steps[0].k, steps[0].v, steps[0].gates, cache, **ON_TRITON)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        for one in steps[1:31]:
            ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, **ON_TRITON)
        torch.cuda.set_sync_debug_mode("default")
    assert not [one for one in caught if "called a synchronizing" in str(one.message)]
    graph, one = torch.cuda.CUDAGraph(), steps[31]
    with torch.cuda.graph(graph):
        ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, **ON_TRITON)
    for _ in range(4):
        graph.replay()
    assert cache.lengths.tolist() == [32, 32], "the fourth replay had no room"
    with pytest.raises(ValueError, match="beyond the capacity of 32"):
        cache.advance(4)


@pytest.mark.cuda
@pytest.mark.usefixtures("gpu")
def test_what_cannot_be_captured_says_so() -> None:
    inputs = drawn(12, dtype=torch.float16)
    cache = cache_for(inputs, SMALL, capacity=8)
    for t in range(8):
        stepped(inputs, cache, t)
    one = inputs.between(8, 9)
    with pytest.raises(ValueError, match="no room for 9 tokens"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, **ON_TRITON)
    with pytest.raises(ValueError, match="cannot be captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, backend="torch")
