"""Decode on a GPU: the outputs of the whole, the formula's reads, no waiting for the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from nsa import NativeSparseAttention, NSAConfig, blocks, flags, routing
from nsa.tests.testing import need_cuda

pytestmark = pytest.mark.cuda
CONFIG = NSAConfig(l=16, d=8, l_sel=32, n_sel=4, w=50)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    need_cuda(None, "")
    yield


def layer(dtype: torch.dtype, config: NSAConfig = CONFIG) -> NativeSparseAttention:
    torch.manual_seed(0)
    return NativeSparseAttention(64, 8, 2, config, dk=32, dv=16, phi="mlp").to("cuda", dtype).requires_grad_(False)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "config"),
    [
        (torch.float32, 1e-5, CONFIG),
        (torch.bfloat16, 3e-2, replace(CONFIG, n_sel=10)),  # all blocks: scores that are rounded to bf16 nearly tie
    ],
    ids=["float32", "bfloat16"],
)
def test_chunks_and_steps_equal_the_whole(dtype: torch.dtype, tolerance: float, config: NSAConfig) -> None:
    attention, x = layer(dtype, config), torch.randn(3, 300, 64, device="cuda", dtype=dtype)
    cache = attention.new_cache(3, capacity=16)
    found = [attention(x[:, :130], cache), attention(x[:, 130:240], cache)]
    with flags.using(debug_compare=True), routing.record() as recording:
        for t in range(240, 300):
            found.append(attention(x[:, t : t + 1], cache))
            assert cache.reads is not None and cache.reads.tolist() == [blocks.reads_expected(t, config)] * 3
    torch.testing.assert_close(torch.cat(found, 1), attention(x), rtol=tolerance, atol=tolerance)
    assert all(route.device.startswith("cuda") for route in recording)
    assert max(route.mean_abs_error or 0.0 for route in recording.of("decode")) < tolerance


def test_sequences_of_different_lengths_never_wait() -> None:
    attention, x = layer(torch.float32), torch.randn(3, 200, 64, device="cuda")
    cache, starts = attention.new_cache(3, capacity=256), [150, 40, 101]
    padded = torch.zeros(3, 150, 64, device="cuda")
    for b, start in enumerate(starts):
        padded[b, :start] = x[b, :start]
    attention(padded, cache, counts=starts)
    tokens = [torch.stack([x[b, start + i] for b, start in enumerate(starts)])[:, None] for i in range(40)]
    found = [attention(tokens[0], cache)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        found += [attention(step, cache) for step in tokens[1:24]]
        torch.cuda.set_sync_debug_mode("default")
    assert not [one for one in caught if "called a synchronizing" in str(one.message)]
    for b, start in enumerate(starts):
        expected = attention(x[b : b + 1, : start + 24])[0, start:]
        torch.testing.assert_close(torch.cat(found, 1)[b], expected, rtol=1e-5, atol=1e-5)
