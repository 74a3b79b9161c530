"""Packed sequences and counts ask the device once, not in each layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nsa import NativeSparseAttention, host, nsa_attention, nsa_decode
from nsa.tests.decoding import SMALL, Inputs
from nsa.tests.kernel_cases import DEVICE
from nsa.tests.testing import Problem

ASKS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::item", "aten::is_nonzero", "aten::equal", "aten::unique")
"""What waits for the device, beside `tolist`."""


class Asked(TorchDispatchMode):
    """Names what waits for the device in the block."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func._schema.name in ASKS:
            self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The tensors whose numbers were asked for, where that waits for a device, as if it did here."""
    found: list[Tensor] = []
    ask: Callable[[Tensor], list[int]] = host._asked
    monkeypatch.setattr(host, "_asked", lambda x: (found.append(x), ask(x))[1])
    monkeypatch.setattr(host, "waits_for", lambda x: True)
    return found


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_writes_that_nobody_counts_are_seen_on_the_host(dtype: torch.dtype) -> None:
    """Collectives, numpy and `.data` write to a buffer of borders without PyTorch's counting that."""
    borders, x = torch.tensor([0, 7, 20], dtype=dtype), torch.randn(1, 20, 32)
    layer = NativeSparseAttention(32, 4, 2, SMALL)
    layer(x, cu_seqlens=borders)
    borders.numpy()[1] = 13
    torch.testing.assert_close(layer(x, cu_seqlens=borders), layer(x, cu_seqlens=borders.clone()))


def test_borders_of_a_device_are_converted_each_time(asked: list[Tensor]) -> None:
    """A CUDA graph that is captured after such a call reads the borders that it is replayed with."""
    borders, device = torch.tensor([0, 7, 20]), torch.device("cpu")
    first, second = (host.int32_on(borders, device) for _ in range(2))
    assert first is not second and host.numbers(first) == host.numbers(second) == [0, 7, 20]
    borders.numpy()[1] = 9
    assert host.int32_on(borders, device).tolist() == [0, 9, 20]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_layers_of_packed_sequences_ask_once(dtype: torch.dtype, asked: list[Tensor]) -> None:
    layers = [NativeSparseAttention(32, 4, 2, SMALL) for _ in range(3)]
    x, borders = torch.randn(1, 60, 32), torch.tensor([0, 21, 21, 60], dtype=dtype)
    for layer in layers:
        x = layer(x, cu_seqlens=borders)
    assert len(asked) == 1
    x.sum().backward()
    assert len(asked) == 1
    borders[2] = 30  # other borders now
    before = layers[0](torch.ones(1, 60, 32), cu_seqlens=borders)
    assert len(asked) == 2
    assert torch.equal(before, layers[0](torch.ones(1, 60, 32), cu_seqlens=torch.tensor([0, 21, 30, 60])))


@pytest.mark.triton
def test_packed_sequences_on_the_kernels_ask_nothing_more(asked: list[Tensor]) -> None:
    problem = Problem(SMALL, lengths=(13, 1, 17), kv_heads=1, dk=16, dv=16, device=DEVICE)
    x = {name: tensor.requires_grad_() for name, tensor in problem.tensors().items()}
    borders = problem.cu_seqlens
    assert borders is not None
    keys, values = ([x[f"{kind}_{branch}"] for branch in ("cmp_in", "sel", "win")] for kind in "kv")
    with Asked() as others:
        for _ in range(2):
            o = nsa_attention(
                x["q"], tuple(keys), tuple(values), x["gates"], SMALL, cu_seqlens=borders, backend="triton"
            )
    assert not asked and not others.names
    if DEVICE == "cuda":
        torch.cuda.set_sync_debug_mode("error")
        try:
            o.sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_what_begins_on_the_host_is_never_asked_for() -> None:
    here = torch.tensor([0, 3, 9])
    assert host.int32_on(here, torch.device("cpu")).dtype == torch.int32
    there = host.int32_on(here, torch.device("meta"))  # from which nothing could be asked
    assert there is host.int32_on(here, torch.device("meta")) and host.numbers(there) == [0, 3, 9]
    here[1] = 4
    assert host.numbers(here) == [0, 4, 9] and host.numbers(host.int32_on(here, torch.device("meta"))) == [0, 4, 9]
    with torch.inference_mode():  # where nobody counts what is written
        counted = torch.tensor([1, 2])
        assert host.numbers(counted) == [1, 2]
        counted[0] = 5
        assert host.numbers(counted) == [5, 2]


def test_counts_and_beams_are_asked_for_once(asked: list[Tensor]) -> None:
    inputs, counts, beams = Inputs.random(9), torch.tensor([3, 1]), torch.tensor([1, 1])
    for _ in range(3):  # layers
        cache = inputs.cache(SMALL)
        cache.append(inputs.k, inputs.v, counts=counts)
        cache.reorder(beams)
        assert cache.lengths.tolist() == [1, 1]
    assert [id(one) for one in asked] == [id(counts), id(beams)]


def test_a_chunk_through_a_cache_asks_for_nothing(asked: list[Tensor]) -> None:
    """The host knows how many tokens a cache holds."""
    inputs, cache = Inputs.random(30), Inputs.random(30).cache(SMALL)
    for first, end in ((0, 13), (13, 29)):
        k, v = (tuple(x[:, first:end] for x in branches) for branches in (inputs.k, inputs.v))
        nsa_decode(inputs.q[:, first:end], k, v, inputs.gates[:, first:end], cache)
    assert not asked
