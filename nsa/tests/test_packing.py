"""Packed sequences on the kernels: nobody waits for what their borders hold, and nothing is read beyond a tensor."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nsa import blocks, flags, host, nsa_attention, reference, routing
from nsa.kernels.compression import mean
from nsa.kernels.ranges.key_ranges import KeyRanges, pack
from nsa.plans import PLANS
from nsa.tests.kernel_cases import DEVICE, SLOW, SMALL
from nsa.tests.testing import need_cuda

pytestmark = pytest.mark.triton
HERE = torch.empty(0, device=DEVICE).device
LENGTHS = [(0, 13, 1, 0, 30), (40,), (5, 5, 5), (100, 3, 77, 1, 0, 0, 9), (8, 8, 8), (0,), ()]


def borders_of(lengths: tuple[int, ...], dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor([0, *torch.tensor(lengths, dtype=dtype).cumsum(0).tolist()], dtype=dtype, device=DEVICE)


def listed(ranges: KeyRanges) -> SimpleNamespace:
    """Ranges as lists."""
    arrays = {name: getattr(ranges, name).tolist() for name in ("lo", "hi", "q_lo", "q_hi")}
    return SimpleNamespace(branch=ranges.branch, **arrays)


@contextmanager
def unlooked_at() -> Iterator[None]:
    """Borders that the host would have to wait for, which it must not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "waits_for", lambda x: True)
        patch.setattr(host, "_asked", lambda x: pytest.fail("the device was asked"))
        yield
    host.note_of(HERE).zero_()


@pytest.fixture
def unseen() -> Iterator[None]:
    with unlooked_at():
        yield


@pytest.mark.parametrize("before", [0, 1, 35])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_each_token_reads_what_the_oracle_says(lengths: tuple[int, ...], dtype: torch.dtype, before: int) -> None:
    """Where there are keys before a sequence's queries, too: so many, none, so many and so on."""
    earlier = tuple(before * (i % 2 == 0) for i in range(len(lengths)))
    borders, tokens = borders_of(lengths, dtype), sum(lengths)
    of_keys, keys = borders_of(tuple(map(sum, zip(lengths, earlier, strict=True))), dtype), tokens + sum(earlier)
    given = (borders, of_keys) if before else borders
    found = pack(given, tokens, keys, SMALL.w, SMALL)
    firsts = blocks.cu_seqlens_cmp(of_keys.int().cpu(), SMALL).tolist()
    ends, key_ends = borders.tolist(), of_keys.tolist()
    assert found.borders.tolist() == [ends, key_ends]
    apart = torch.stack([borders, borders + 7], 1)[:, 0]
    assert torch.equal(pack(apart, tokens, keys, SMALL.w, SMALL).borders[0], found.borders[0])
    if before:
        only = pack(given, tokens, config=SMALL, compressed=firsts[-1]).compressed  # the number of keys is not needed
        assert torch.equal(only.lo, found.compressed.lo) and torch.equal(only.hi, found.compressed.hi)
        assert torch.equal(only.q_lo, found.compressed.q_lo[: firsts[-1]])
    window, cmp = (listed(ranges) for ranges in (found.window, found.compressed))
    starts, lasts = found.bounds.start.tolist(), found.bounds.end.tolist()
    read: dict[str, dict[int, list[int]]] = {"window": {}, "compressed": {}}
    for i, ((first, end), first_key, first_cmp) in enumerate(zip(pairwise(ends), key_ends, firsts, strict=False)):
        for row in range(first, end):
            t = row - first + earlier[i]
            seen = [first_key + s for s in reference.window_set(t, SMALL.w)]
            assert list(range(window.lo[row], window.hi[row])) == seen
            means = [first_cmp + i for i in reference.visible_set(t, SMALL)]
            assert list(range(cmp.lo[row], cmp.hi[row])) == means
            assert (row - starts[row], lasts[row]) == (t, end)
            for name, read_there in (("window", seen), ("compressed", means)):
                for s in read_there:
                    read[name].setdefault(s, []).append(row)
    for ranges in (window, cmp):
        for s in range(len(ranges.q_lo)):
            assert list(range(ranges.q_lo[s], ranges.q_hi[s])) == read[ranges.branch].get(s, [])
        for rising in (ranges.lo, ranges.hi, ranges.q_lo, ranges.q_hi):
            assert rising == sorted(rising)


@pytest.mark.parametrize(
    "of_keys", [(0, 15, 41), (0, 12, 50), (0, 30, 49), (0, 51, 50), (3, 20, 50), (0, 2**32 + 13, 50)], ids=str
)
def test_borders_of_keys_that_cannot_be_are_those_of_one_sequence(of_keys: tuple[int, ...]) -> None:
    """Of 50 keys and of 13 and 27 queries: too few at the end or for some queries, too many, falling, not from 0."""
    given = borders_of((13, 27)), torch.tensor(of_keys, dtype=torch.int64, device=DEVICE)
    host.note_of(HERE).zero_()
    found = pack(given, 40, 50, SMALL.w, SMALL)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    assert int(host.note_of(HERE)) == 40
    host.note_of(HERE).zero_()
    assert found.borders.tolist() == [[0, 40, 40], [0, 50, 50]]
    assert found.window.hi.tolist() == list(range(11, 51))


def test_means_without_a_span_are_zeros() -> None:
    """They share tiles with others, whose gradient would take a part of what is no number."""
    borders, x = borders_of((13, 9, 18)), torch.rand(1, 40, 2, 16, device=DEVICE) + 1
    packing = pack(borders, 40, 40, SMALL.w, SMALL)
    count = int(blocks.cu_seqlens_cmp(borders, SMALL)[-1])
    k, v = mean.forward(x, x, SMALL, packing, rope=1e4)
    assert k.shape[1] == blocks.num_compressed(40, SMALL) > count
    assert not k[:, count:].any() and not v[:, count:].any() and v[:, :count].all()
    exact = mean.forward(x, x, SMALL, borders, rope=1e4)
    assert torch.equal(k[:, :count], exact[0]) and torch.equal(v[:, :count], exact[1])


def test_whatever_borders_hold_all_stays_inside() -> None:
    generator = random.Random(0)
    extremes = (-(2**31), -7, 0, 3, 39, 40, 41, 2**31 - 1, 2**33)
    for number in range(60):
        given = [generator.choice(extremes) for _ in range(generator.randint(1, 9))]
        if number % 3 == 0:
            given[0], given[-1] = 0, 40
        dtype = torch.int64 if any(abs(x) >= 2**31 for x in given) else torch.int32
        host.note_of(HERE).zero_()
        found = pack(torch.tensor(given, dtype=dtype, device=DEVICE), 40, 40, SMALL.w, SMALL)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        right = given[0] == 0 and given[-1] == 40 and given == sorted(given)
        assert int(host.note_of(HERE)) == (0 if right else 40)
        assert found.borders.tolist() == [given if right else [0] + [40] * (len(given) - 1)] * 2
        if len(given) < 2:
            continue
        for ranges, keys in ((found.window, 40), (found.compressed, len(found.compressed.q_lo))):
            assert ranges.lo.min() >= 0 and ranges.hi.max() <= keys and ranges.q_lo.min() >= 0
            assert ranges.q_lo.max() <= 40 and ranges.q_hi.max() <= 40
    host.note_of(HERE).zero_()


def _inputs(grad: bool = True) -> list[Tensor]:
    shapes = (1, 40, 4, 16), (1, 40, 2, 16), (1, 40, 2, 16), (1, 40, 4, 3)
    return [torch.randn(shape, device=DEVICE, requires_grad=grad) for shape in shapes]


def _called(x: list[Tensor], borders: Tensor) -> list[Tensor]:
    return _with_gradients(x, cu_seqlens=borders, backend="triton", deterministic=True)


def _with_gradients(x: list[Tensor], **how: Any) -> list[Tensor]:
    o = nsa_attention(*x, SMALL, **how)
    assert isinstance(o, Tensor)
    return [o.detach(), *torch.autograd.grad(o, x, torch.ones_like(o))]


@pytest.mark.parametrize("dtype", [torch.int32, pytest.param(torch.int64, marks=SLOW)])
def test_other_borders_are_of_the_same_kind(dtype: torch.dtype, unseen: None) -> None:
    """One plan, recorded at its second call, for any border: each result is that of its sequences alone."""
    x = _inputs()
    for first in (13, 40, 0, 27):
        found = _called(x, borders_of((first, 40 - first), dtype))
        apart = [
            _with_gradients([y[:, part].detach().requires_grad_() for y in x], backend="torch")
            for part in (slice(0, first), slice(first, 40))
            if part.stop > part.start
        ]
        for together, parts in zip(found, zip(*apart, strict=True), strict=True):
            torch.testing.assert_close(together, torch.cat(parts, 1), rtol=1e-4, atol=1e-4)
    (plan,) = [plan for plan in PLANS if torch.Size([3]) in plan.key]
    assert len(plan.recorded) == 2 and all(map(callable, plan.recorded.values()))


def test_queries_after_earlier_keys_are_not_waited_for() -> None:
    """One plan, recorded at its second call, for any borders."""
    shapes = (1, 20, 4, 16), (1, 70, 2, 16), (1, 70, 2, 16), (1, 20, 4, 3)
    x = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in shapes]
    for queries, keys in ((13, 44), (20, 70), (0, 9), (6, 31)):
        where = {
            "cu_seqlens": borders_of((queries, 20 - queries)),
            "cu_seqlens_k": borders_of((keys, 70 - keys)),
        }
        expected = _with_gradients(x, backend="torch", **where)
        with unlooked_at():
            found = _with_gradients(x, backend="triton", deterministic=True, **where)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    (plan,) = [plan for plan in PLANS if plan.request.keys == 70 and plan.recorded]
    assert len(plan.recorded) == 2 and all(map(callable, plan.recorded.values()))


def test_borders_that_nobody_looked_at_are_refused_later(unseen: None) -> None:
    wrong, right = borders_of((13, 26)), borders_of((13, 27))  # one token is of no sequence
    x = _inputs()
    with torch.no_grad():
        found = nsa_attention(*x, SMALL, cu_seqlens=wrong, backend="triton")
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        with pytest.raises(ValueError, match=r"of an earlier call did not rise from 0 to T=40, .* computed as one"):
            nsa_attention(*x, SMALL, cu_seqlens=right, backend="triton")
        nsa_attention(*x, SMALL, cu_seqlens=right, backend="triton")  # said once
        assert isinstance(found, Tensor)
        torch.testing.assert_close(found, nsa_attention(*x, SMALL, backend="triton"))


def test_the_gradient_refuses_them_too(unseen: None) -> None:
    x = _inputs()
    o = nsa_attention(*x, SMALL, cu_seqlens=borders_of((13, 26)), backend="triton")
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    with pytest.raises(ValueError, match="of an earlier call did not rise from 0 to T=40"):
        o.sum().backward()  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["strict", "NSA_STRICT", "NSA_DEBUG_COMPARE"])
def test_who_is_strict_waits(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "waits_for", lambda x: True)
    given = {"strict": {"strict": True}}.get(how, {})
    flag = {"NSA_STRICT": {"strict": True}, "NSA_DEBUG_COMPARE": {"debug_compare": True}}.get(how, {})
    with flags.using(**flag), pytest.raises(ValueError, match=r"must rise from 0 to T=40, got \[0, 13, 39\]"):
        nsa_attention(*_inputs(False), SMALL, cu_seqlens=borders_of((13, 26)), backend="triton", **given)


def test_what_waits_anyway_is_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "waits_for", lambda x: True)
    with pytest.raises(ValueError, match=r"must rise from 0 to T=40"), routing.record():
        nsa_attention(*_inputs(False), SMALL, cu_seqlens=borders_of((13, 26)), backend="torch")


@pytest.mark.cuda
def test_a_captured_packed_call_takes_new_borders() -> None:
    need_cuda(None, "")
    x, borders = _inputs(), borders_of((13, 27))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            _called(x, borders)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = _called(x, borders)
    for first in (13, 40, 5):
        borders.copy_(borders_of((first, 40 - first)))
        graph.replay()
        for one, other in zip(found, _called(x, borders.clone()), strict=True):
            assert torch.equal(one, other)


@pytest.mark.cuda
def test_a_packed_call_waits_for_nothing() -> None:
    need_cuda(None, "")
    x, borders = _inputs(), borders_of((13, 27))
    _called(x, borders)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for first in (5, 30, 0):
            borders[1:2].fill_(first)
            _called(x, borders)
    finally:
        torch.cuda.set_sync_debug_mode("default")
