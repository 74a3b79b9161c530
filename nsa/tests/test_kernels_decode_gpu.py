"""The decode kernels on a GPU: inside a CUDA graph, against the oracle, and never waiting for the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from nsa import NativeSparseAttention, NSAConfig, blocks, ops
from nsa.tests import testing
from nsa.tests.decode_cases import ON_TRITON, cache_for, drawn, mapped, oracle, stepped, tensors
from nsa.tests.decoding import SMALL

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    testing.need_cuda(None, "")
    yield


@pytest.mark.parametrize("page_size", [None, 128])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dk", "dv"),
    [(64, 4, 128, 128), (32, 8, 128, 128), (16, 2, 192, 128), (4, 4, 256, 256), (128, 1, 192, 128), (160, 2, 128, 128)],
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


@pytest.mark.parametrize("page_size", [None, 128])
def test_a_captured_step_of_several_tokens_equals_the_oracle(page_size: int | None) -> None:
    """Each replay appends four tokens of each sequence, and none sees those after it."""
    config, begun, tokens, replays = NSAConfig(), [1171, 40], 4, 12
    shape = {"batch": 2, "heads": 128, "kv_heads": 1, "dk": 192, "dv": 128}
    end = max(begun) + (1 + replays) * tokens
    inputs = drawn(end, **shape, dtype=torch.bfloat16)
    cache = cache_for(inputs, config, capacity=end, page_size=page_size)
    first, one = inputs.rows([0, 0], begun), inputs.rows(begun, [tokens, tokens])
    cache.append(first.k, first.v, counts=begun)
    cache.reserve(end)
    ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, **ON_TRITON)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), testing.expect_route(decode="triton", device="cuda"):
        o = ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, **ON_TRITON)
    for step in range(1, 1 + replays):
        at = [length + step * tokens for length in begun]
        for held, new in zip(tensors(one), tensors(inputs.rows(at, [tokens, tokens])), strict=True):
            held.copy_(new)
        graph.replay()
        cache.advance(tokens)
        if step in (1, replays):
            for b, t in enumerate(at):
                seen = mapped(lambda x, b=b, t=t: x[b : b + 1, : t + tokens], inputs)
                expected = oracle(seen, config, list(range(t, t + tokens)))
                testing.assert_close(o[b : b + 1], expected, torch.bfloat16, f"sequence {b} at {t}")
    assert cache.lengths.tolist() == [length + (1 + replays) * tokens for length in begun]


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


def test_what_cannot_be_captured_says_so() -> None:
    inputs = drawn(12, dtype=torch.float16)
    cache = cache_for(inputs, SMALL, capacity=8)
    for t in range(8):
        stepped(inputs, cache, t)
    one = inputs.between(8, 9)
    with pytest.raises(ValueError, match="no room for 9 tokens"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, **ON_TRITON)
    cache.reserve(9)
    with pytest.raises(ValueError, match="cannot be captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, backend="torch")
