"""Calls that repeat are replayed: the same numbers, for other tensors, without the function that was recorded."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nsa import host, nsa_attention
from nsa.config import NSAConfig
from nsa.kernels import attention, replay
from nsa.kernels.replay import Replayed
from nsa.kernels.tuning import lookup
from nsa.tests.kernel_cases import DEVICE, SMALL

pytestmark = pytest.mark.triton


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self.function(*arguments)


def replayed(function: Callable[..., Any]) -> tuple[Replayed, Counted]:
    counted = Counted(function)
    return Replayed(counted), counted


# --- the whole operation ---


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counted]:
    """The functions of the whole operation, new ones that know no call yet."""
    found = {}
    for name in ("_forward", "_backward"):
        new, found[name] = replayed(getattr(attention, name).function)
        monkeypatch.setattr(attention, name, new)
    return found


def _tensors(seed: int, tokens: int = 21, batch: int = 1, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"q": (4, 16), "k": (2, 16), "v": (2, 16), "gates": (4, 3), "do": (4, 16)}
    made = {name: torch.randn(batch, tokens, *shape, generator=generator) for name, shape in shapes.items()}
    return {name: x.to(DEVICE, dtype) for name, x in made.items()}


def _outcome(x: dict[str, Tensor], config: NSAConfig = SMALL, **how: Any) -> list[Tensor]:
    leaves = [x[name].detach().requires_grad_() for name in ("q", "k", "v", "gates")]
    o = nsa_attention(*leaves, config, backend="triton", strict=True, **how)
    return [o.detach(), *torch.autograd.grad(o, leaves, x["do"])]


def _same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def _plain(monkeypatch: pytest.MonkeyPatch, x: dict[str, Tensor], **how: Any) -> list[Tensor]:
    """The outcome without anything that was recorded."""
    with monkeypatch.context() as patch:
        patch.setattr(replay, "_is_special", lambda tensors: True)
        return _outcome(x, **how)


@pytest.mark.parametrize(
    ("batch", "dtype"), [(1, torch.float32), pytest.param(2, torch.float16, marks=pytest.mark.slow)]
)
def test_the_third_call_is_replayed(
    batch: int, dtype: torch.dtype, counted: dict[str, Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        x = _tensors(seed, batch=batch, dtype=dtype)
        found = _outcome(x)
        assert [function.calls for function in counted.values()] == [min(seed + 1, 2)] * 2
        with monkeypatch.context() as patch:
            patch.setattr(attention, "_forward", Replayed(counted["_forward"].function))
            patch.setattr(attention, "_backward", Replayed(counted["_backward"].function))
            assert _same(found, _outcome(x))


def test_without_gradients(counted: dict[str, Counted]) -> None:
    for seed in range(4):
        x = _tensors(seed)
        with torch.no_grad():
            found = nsa_attention(x["q"], x["k"], x["v"], x["gates"], SMALL, backend="triton", strict=True)
        assert counted["_forward"].calls == min(seed + 1, 2)
        assert torch.equal(found, counted["_forward"].function(*_arguments(x), SMALL, 16**-0.5, True, None, False)[0])


def _arguments(x: dict[str, Tensor]) -> tuple[Tensor | None, ...]:
    return x["q"], *(x["k"], x["v"]) * 3, x["gates"], None, None, None


def _sliced(seed: int) -> dict[str, Tensor]:
    """q, k and v as columns of one tensor, as a fused projection leaves them."""
    x = _tensors(seed)
    fused = torch.cat([x["q"], x["k"], x["v"]], 2)
    return {**x, **dict(zip("qkv", fused.split((4, 2, 2), 2), strict=True))}


def _turned(seed: int) -> dict[str, Tensor]:
    """k and v with the heads before the tokens."""
    x = _tensors(seed)
    return {**x, **{name: x[name].transpose(1, 2).contiguous().transpose(1, 2) for name in "kv"}}


def _shifted(seed: int) -> dict[str, Tensor]:
    """q at an address that is no multiple of 16."""
    x = _tensors(seed)
    room = torch.empty(x["q"].numel() + 1, device=DEVICE)
    return {**x, "q": room[1:].view_as(x["q"]).copy_(x["q"])}


@pytest.mark.slow
def test_layouts_are_kinds_of_their_own(counted: dict[str, Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Callable[[int], dict[str, Tensor]]] = [_tensors, _sliced, _turned, _shifted]
    for seed in range(3):
        for make in made:
            x = make(seed)
            found = _outcome(x)
            if seed == 2:
                assert _same(found, _plain(monkeypatch, x)), make.__name__
    assert len(attention._forward._known) == len(made)
    assert counted["_forward"].calls == len(made) * (2 + 1)  # `_plain` calls it too


@pytest.mark.slow
def test_keys_that_are_one_tensor_or_several(counted: dict[str, Counted]) -> None:
    """Shared keys get one gradient, the sum of what they would get as three."""
    for seed in range(3):
        x = _tensors(seed)
        o, dq, dk, dv, dgates = _outcome(x)
        leaves = [x[name].detach().clone().requires_grad_() for name in ("q", *"kkkvvv", "gates")]
        o_apart = nsa_attention(leaves[0], tuple(leaves[1:4]), tuple(leaves[4:7]), leaves[7], SMALL, backend="triton")
        d = torch.autograd.grad(o_apart, leaves, x["do"])
        assert torch.equal(o, o_apart)
        assert torch.equal(dq, d[0])
        assert torch.equal(dgates, d[7])
        torch.testing.assert_close(dk, d[1] + d[2] + d[3])
        torch.testing.assert_close(dv, d[4] + d[5] + d[6])
    assert {function.calls for function in counted.values()} == {4}  # twice for each of two kinds


def test_of_its_own_keys_the_compressed_branch_keeps_the_means(counted: dict[str, Counted]) -> None:
    x = _tensors(0)
    q, k, v = (x[name].requires_grad_() for name in "qkv")
    expected = _outcome(x)[1:4]
    for own in (k.clone(), k.clone()):
        o = nsa_attention(q, (own, k, k), (v * 1, v, v), x["gates"], SMALL, backend="triton", strict=True)
        with torch.no_grad():
            own.zero_()
        found = torch.autograd.grad(o, (q, k, v), x["do"])
        torch.testing.assert_close(list(found), expected)


@pytest.mark.slow
def test_given_blocks_and_chunks_are_inputs(counted: dict[str, Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        x = _tensors(seed)
        late = {**x, **{name: x[name][:, :9].contiguous() for name in ("q", "gates", "do")}}
        how = {"q_start": torch.tensor([seed], device=DEVICE)}
        found = _outcome(late, **how)
        own = torch.arange(21, device=DEVICE, dtype=torch.int32)[None, :, None, None] // SMALL.l_sel
        blocks = (own * (seed % 2)).expand(1, 21, 2, 1).contiguous()
        given = _outcome(x, block_indices=blocks)
    assert counted["_forward"].calls == 4
    assert _same(found, _plain(monkeypatch, late, **how))
    assert _same(given, _plain(monkeypatch, x, block_indices=blocks))


@pytest.mark.slow
def test_packed_sequences_are_computed_each_time(counted: dict[str, Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    """How many compressed tokens there are is a number on the device."""
    for seed, border in enumerate((12, 7, 12)):
        x = _tensors(seed)
        where = {"cu_seqlens": torch.tensor([0, border, 21], dtype=torch.int32, device=DEVICE)}
        found = _outcome(x, **where)
        assert counted["_forward"].calls == seed + 1
    assert _same(found, _plain(monkeypatch, x, **where))


def test_many_queries_are_not_replayed(counted: dict[str, Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "HOST_BOUND", 20)
    _outcome(_tensors(0))
    assert not attention._forward._known


def test_trials_are_not_replayed(counted: dict[str, Counted]) -> None:
    with lookup.trying({}):
        for _ in range(3):
            _outcome(_tensors(0))
    assert counted["_forward"].calls == 3


def test_nothing_of_the_recorded_call_is_held(counted: dict[str, Counted]) -> None:
    references = []
    for seed in range(3):
        x = _tensors(seed)
        found = _outcome(x)
        references += [weakref.ref(tensor) for tensor in (*x.values(), *found)]
    del x, found
    until = time.monotonic() + 10  # the thread that computes gradients on a GPU may let go a moment later
    while any(reference() is not None for reference in references) and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert [reference() for reference in references] == [None] * len(references)


# --- any function ---


def _kinds(function: Callable[..., Any], *calls: tuple[Tensor, ...]) -> int:
    """Call three times with each tuple of tensors, compare with the function itself, and count its calls."""
    wrapped, counted = replayed(function)
    for _ in range(3):
        for tensors in calls:
            expected = function(*tensors)
            for found, x in zip(wrapped(tensors, ()), expected, strict=True):
                assert (found is None and x is None) or torch.equal(found, x)
    return counted.calls


A, B = torch.arange(6.0), torch.arange(6.0).flip(0) ** 2
TABLE = torch.ones(6)


def test_operations_of_pytorch_are_repeated_with_the_new_tensors() -> None:
    def function(a: Tensor) -> tuple[Tensor, ...]:
        ordered, order = torch.sort(a.to(torch.float64)[1:], descending=True, stable=True)
        sums = torch.empty_like(a[:5], dtype=torch.float64)
        sums.copy_(ordered).cumsum_(0)
        return sums[2:], order, torch.searchsorted(sums, ordered), a[::2]

    assert _kinds(function, (A,), (B,)) == 2


def test_constants_stay() -> None:
    table = torch.tensor([3.0, 4.0])
    assert _kinds(lambda a: (a[:2] * table, table, None), (A,), (B,)) == 2
    assert _kinds(lambda a: (a[:1] * table[1:], table[:, None].expand(2, 6) * a, table[1:]), (A,), (B,)) == 2


def test_what_is_empty_names_no_address() -> None:
    recorder = replay._Recorder((A[:0], A))
    place = recorder._place(A[2:])
    assert place is not None
    assert place.address([B[:0], B]) == B[2:].data_ptr()


@pytest.mark.parametrize(
    "function",
    [
        lambda a: (a * int(a.max()),),
        lambda a: (a * host.numbers(a)[0],),
        lambda a: (torch.cat([a, a * 2]),),
        lambda a: ((a + 1).view(torch.int32),),
        lambda a: (a.nonzero().flatten().float()[1:],),
        lambda a: (TABLE.add_(0) * a,),
    ],
    ids=[
        "asks for a value", "knows a value", "list of tensors", "read as another dtype", "size by value",
        "changes a constant",
    ],
)  # fmt: skip
def test_what_cannot_be_repeated_is_called(function: Callable[..., Any]) -> None:
    assert _kinds(function, (A,), (B,)) == 6


def test_kinds_that_never_return_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST", 4)
    wrapped, _ = replayed(lambda a, n: (a * n,))
    for n in range(20):
        wrapped((A,), (n,))
        assert len(wrapped._known) <= 4


def test_what_failed_when_it_was_recorded_is_called() -> None:
    failing = [False, True, False, False]

    def function(a: Tensor) -> tuple[Tensor, ...]:
        if failing[wrapped.function.calls - 1]:
            raise RuntimeError("out of memory")
        return (a + 1,)

    wrapped, counted = replayed(function)
    wrapped((A,), ())
    with pytest.raises(RuntimeError, match="out of memory"):
        wrapped((A,), ())
    for _ in range(2):
        assert torch.equal(wrapped((B,), ())[0], B + 1)
    assert counted.calls == 4


def test_temporaries_are_freed_in_time() -> None:
    """A replay holds no more than the function did."""

    def function(a: Tensor) -> tuple[Tensor, ...]:
        b = a + 1
        c = b * 2
        del b
        return (c + 1,)

    wrapped, _ = replayed(function)
    for _ in range(2):
        wrapped((A,), ())
    (recipe,) = wrapped._known.values()
    held = [set[int]()]
    for _, done in recipe.steps:
        held.append(held[-1] | set(done))
    assert [len(x) for x in held] == [0, 0, 1, 2]
