"""Calls that repeat are replayed: the same numbers, for other tensors, without the function that was recorded."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from nsa import host, nsa_attention, ops
from nsa.config import NSAConfig
from nsa.kernels import attention, recorded
from nsa.kernels.common import streams
from nsa.kernels.common.launch import Launched
from nsa.kernels.recorded import NEVER, SEEN, Differentiable, beside, repeated
from nsa.kernels.tuning import lookup
from nsa.plans import PLANS
from nsa.tests.kernel_cases import DEVICE, SMALL
from nsa.tests.replaying import Counted, a_plan, replayed

pytestmark = pytest.mark.triton


# --- the whole operation ---


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counted]:
    """The functions of the whole operation."""
    found = {name: Counted(getattr(attention, name)) for name in ("_forward", "_backward")}
    whole = replace(attention._ATTENTION, forward=found["_forward"], backward=found["_backward"])
    monkeypatch.setattr(attention, "_ATTENTION", whole)
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


def _plain(x: dict[str, Tensor], **how: Any) -> list[Tensor]:
    """The outcome without anything that was recorded."""
    with lookup.trying({}):
        return _outcome(x, **how)


@pytest.mark.parametrize(
    ("batch", "dtype"), [(1, torch.float32), pytest.param(2, torch.float16, marks=pytest.mark.slow)]
)
def test_the_third_call_is_replayed(batch: int, dtype: torch.dtype, counted: dict[str, Counted]) -> None:
    for seed in range(3):
        x = _tensors(seed, batch=batch, dtype=dtype)
        found = _outcome(x)
        calls = [function.calls for function in counted.values()]
        assert calls == [min(seed + 1, 2)] * 2
        assert _same(found, _plain(x))
        for function, before in zip(counted.values(), calls, strict=True):
            function.calls = before


def test_without_gradients(counted: dict[str, Counted]) -> None:
    for seed in range(4):
        x = _tensors(seed)
        with torch.no_grad():
            found = nsa_attention(x["q"], x["k"], x["v"], x["gates"], SMALL, backend="triton", strict=True)
        assert counted["_forward"].calls == min(seed + 1, 2)
        assert torch.equal(found, counted["_forward"].function(*_arguments(x))[0])


def _arguments(x: dict[str, Tensor]) -> tuple[object, ...]:
    tensors = x["q"], x["k"], x["v"], *(None,) * 4, x["gates"], *(None,) * 4
    return *tensors, SMALL, 16**-0.5, True, None, True, False, False


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
def test_layouts_are_kinds_of_their_own(counted: dict[str, Counted]) -> None:
    made: list[Callable[[int], dict[str, Tensor]]] = [_tensors, _sliced, _turned, _shifted]
    for seed in range(3):
        for make in made:
            x = make(seed)
            found = _outcome(x)
            if seed == 2:
                assert _same(found, _plain(x)), make.__name__
    assert len(PLANS) == len(made)
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


@pytest.mark.parametrize("places", ["abbcdef", "abcdeff", "abcdbef", "aaaaaaa"])
def test_one_tensor_in_several_places_is_a_kind_of_its_own(places: str) -> None:
    """Of q, k and v (cmp, sel, win): what was recorded where some are one tensor reads that one alone."""
    config, window = replace(SMALL, n_sel=3), ops.sliding_window_attention

    def inputs(seed: int, places: str) -> tuple[Tensor, list[Tensor]]:
        source = torch.Generator().manual_seed(seed)
        made = {place: torch.randn(1, 18, 2, 16, generator=source).to(DEVICE) for place in places}
        return torch.rand(1, 18, 2, 3, generator=source).to(DEVICE), [made[place] for place in places]

    def called(gates: Tensor, x: list[Tensor], backend: str) -> list[Tensor]:
        how = {"backend": backend, "strict": True}
        o = nsa_attention(x[0], tuple(x[1:4]), tuple(x[4:]), gates, config, **how)
        return [o, window(*x[:3], 9, **how), ops.gated_combine(*x[:3], gates, **how)]

    for seed in range(3):
        called(*inputs(seed, places), "triton")
    apart = inputs(3, "abcdefg")
    for found, expected in zip(called(*apart, "triton"), called(*apart, "torch"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


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
def test_given_blocks_and_chunks_are_inputs(counted: dict[str, Counted]) -> None:
    for seed in range(3):
        x = _tensors(seed)
        late = {**x, **{name: x[name][:, :9].contiguous() for name in ("q", "gates", "do")}}
        how = {"q_start": torch.tensor([seed], device=DEVICE)}
        found = _outcome(late, **how)
        own = torch.arange(21, device=DEVICE, dtype=torch.int32)[None, :, None, None] // SMALL.l_sel
        blocks = (own * (seed % 2)).expand(1, 21, 2, 1).contiguous()
        given = _outcome(x, block_indices=blocks)
    assert counted["_forward"].calls == 4
    assert _same(found, _plain(late, **how))
    assert _same(given, _plain(x, block_indices=blocks))


@pytest.mark.slow
def test_packed_sequences_are_replayed_whatever_their_borders(counted: dict[str, Counted]) -> None:
    for seed, border in enumerate((12, 7, 12)):
        x = _tensors(seed)
        where = {"cu_seqlens": torch.tensor([0, border, 21], dtype=torch.int32, device=DEVICE)}
        found = _outcome(x, **where)
        assert counted["_forward"].calls == min(seed + 1, 2)
    assert _same(found, _plain(x, **where))


def test_many_queries_are_replayed_too(counted: dict[str, Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "HOST_BOUND", 20)
    for seed in range(3):
        x = _tensors(seed)
        found = _outcome(x)
    assert counted["_backward"].calls == 2
    assert _same(found, _plain(x))


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


def test_a_gradient_is_computed_in_the_context_of_the_call(counted: dict[str, Counted]) -> None:
    """On a GPU it is computed on a thread of autograd's own."""
    x = _tensors(0)
    leaves = [x[name].requires_grad_() for name in ("q", "k", "v", "gates")]
    for _ in range(3):
        with lookup.trying({}):
            o = nsa_attention(*leaves, SMALL, backend="triton", strict=True)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(torch.autograd.grad, o, leaves, x["do"]).result()
    assert [function.calls for function in counted.values()] == [3, 3], "nothing is recorded of a trial"


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


def test_recording_does_not_import_the_compiler() -> None:
    assert not hasattr(recorded.Recorder.__torch_dispatch__, "__wrapped__")  # by what would


def test_constants_stay() -> None:
    table = torch.tensor([3.0, 4.0])
    assert _kinds(lambda a: (a[:2] * table, table, None), (A,), (B,)) == 2
    assert _kinds(lambda a: (a[:1] * table[1:], table[:, None].expand(2, 6) * a, table[1:]), (A,), (B,)) == 2


def test_what_is_empty_names_no_address() -> None:
    assert _kinds(lambda empty, a: (a[2:] * 2, empty), (A[:0], A), (B[:0], B)) == 2


def test_inputs_may_share_their_memory_in_any_way() -> None:
    """They are told apart all the same: a later call's may lie elsewhere."""
    both = torch.arange(16.0)
    function = lambda a, b: (a[1:] + 10 * b[1:], b[2:], a)  # noqa: E731
    calls = (both[:6], both[8:14]), (A, B), (both[8:14], both[:6]), (A, A.clone())
    wrapped, counted = replayed(function)
    for tensors in calls:
        found = wrapped(tensors, ())
        assert all(torch.equal(x, y) for x, y in zip(found, function(*tensors), strict=True))
        assert found[2] is tensors[0]
    assert counted.calls == 2


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


def test_what_failed_when_it_was_recorded_is_called() -> None:
    failing = [False, True, False, False]

    def function(a: Tensor) -> tuple[Tensor, ...]:
        if failing[counted.calls - 1]:
            raise RuntimeError("out of memory")
        return (a + 1,)

    wrapped, counted = replayed(function)
    wrapped((A,), ())
    with pytest.raises(RuntimeError, match="out of memory"):
        wrapped((A,), ())
    for _ in range(2):
        assert torch.equal(wrapped((B,), ())[0], B + 1)
    assert counted.calls == 4


def test_what_is_beside_is_repeated_too() -> None:
    def function(a: Tensor) -> tuple[Tensor, ...]:
        sums, (order, values) = beside(lambda: a.cumsum(0), lambda: (torch.argsort(a, stable=True), a * 2))
        return sums + values, order

    assert _kinds(function, (A,), (B,)) == 2


def test_beside_what_is_beside_there_is_no_third_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the outer one's other part goes to the second stream, what follows the inner pair too."""
    noted: list[str] = []

    class Noting(streams.One):
        def on(self, function: Callable[..., Any], *arguments: Any) -> Any:
            noted.append(str(function))
            return super().on(function, *arguments)

    def function(a: Tensor) -> tuple[Tensor, ...]:
        pair = beside(lambda: a.sin(), lambda: (beside(lambda: a.cos(), lambda: a.tan()), a.exp()))
        return pair[0], *pair[1][0], pair[1][1]

    monkeypatch.setattr(streams, "fork", lambda device: noted.append("fork") or Noting())
    assert _kinds(function, (A,), (B,)) == 2
    assert [name for name in noted if name != "fork"] == 4 * [f"aten.{name}.default" for name in ("cos", "tan", "exp")]
    assert noted.count("fork") == 4


def test_what_reads_what_is_made_beside_it_is_called() -> None:
    def function(a: Tensor) -> tuple[Tensor, ...]:
        made: list[Tensor] = []
        return beside(lambda: made.append(a + 1) or a * 3, lambda: made[0] * 2)

    assert _kinds(function, (A,), (B,)) == 6


def test_threads_may_meet_in_a_recording() -> None:
    """One records, the others call meanwhile; each has its own results."""
    together, met = threading.Barrier(4), set[int]()

    def function(a: Tensor) -> tuple[Tensor, ...]:
        if threading.get_ident() not in met:
            met.add(threading.get_ident())
            together.wait(10)
        return ((a + 1) * 2,)

    wrapped, counted = replayed(function)
    inputs = [A * number for number in range(4)]

    def calls(a: Tensor) -> list[Tensor]:
        return [wrapped((a,), ())[0] for _ in range(9)]

    with ThreadPoolExecutor(4) as threads:
        for a, found in zip(inputs, threads.map(calls, inputs), strict=True):
            assert all(torch.equal(x, (a + 1) * 2) for x in found)
    before = counted.calls
    met.add(threading.get_ident())
    assert torch.equal(wrapped((B,), ())[0], (B + 1) * 2) and counted.calls == before


def test_temporaries_are_freed_in_time() -> None:
    """A recording and a replay hold no more than the function did."""
    alive: list[list[bool]] = []
    made: list[weakref.ref[Tensor]] = []

    class Kernel:
        """Told of each tensor that it is launched with; notes which of all are there."""

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[[Tensor], None]:
            def launch(x: Tensor) -> None:
                made.append(weakref.ref(x))
                alive[-1].append(len([other for other in made if other() is not None]))

            return launch

    kernel = Launched(Kernel())

    def function(a: Tensor) -> tuple[Tensor, ...]:
        b = torch.empty_like(a)
        kernel[(1,)](b)
        c = torch.empty_like(a)
        del b
        kernel[(1,)](c)
        d = torch.empty_like(a)
        kernel[(1,)](d)
        del c
        return (d,)

    wrapped, counted = replayed(function)
    for _ in range(4):
        alive.append([])
        made.clear()
        wrapped((A,), ())
    assert counted.calls == 2 and alive[:2] == [[1, 1, 2]] * 2
    assert alive[2] == alive[3] == [1, 1, 1]


def test_what_a_hook_brings_back_may_lie_there_otherwise() -> None:
    """Memory that was freed between forward and backward, and given to a tensor of the same size."""
    function = Differentiable(
        "any", lambda x: (x.t() ** 2,), lambda do, x: ((2 * x.t() * do).t(),), lambda tensors, results: tensors
    )

    def contiguous(packed: tuple[Tensor, Tensor]) -> Tensor:
        x, held = packed
        return x.as_strided(held.shape, held.stride()).copy_(held)

    hooks = [contextlib.nullcontext(), *(saved_tensors_hooks(lambda x: (x, x.contiguous()), contiguous),) * 3]
    for hook in (hooks[0], hooks[0], *hooks):
        x = torch.randn(4, 4).t()
        expected = 2 * x * torch.arange(4.0)[:, None]
        leaf = x.requires_grad_()
        with hook:
            (o,) = a_plan(x, settings=("hooks",)).within(lambda leaf=leaf: function((leaf,), ()))  # type: ignore[misc]
        assert torch.equal(torch.autograd.grad(o, leaf, torch.arange(4.0).expand(4, 4))[0], expected)


@pytest.mark.parametrize("order", [[0, 0, 0, 1, 2], [1, 1, 1, 0, 2], [2, 2, 2, 1, 0]])
def test_a_gradient_that_is_what_was_kept_is_a_kind_of_its_own(order: list[int]) -> None:
    function = Differentiable(
        "any", lambda a, b: (a * b,), lambda do, a, b: (do * b, do * a), lambda tensors, _: tensors
    )
    for which in order:
        a, b = leaves = tuple(torch.randn(4, 4, requires_grad=True) for _ in range(2))
        (o,) = a_plan(a, b, settings=("own gradient",)).within(lambda leaves=leaves: function(leaves, ()))  # type: ignore[misc]
        up = (torch.randn(4, 4), a, b)[which]
        found = torch.autograd.grad(o, leaves, up)
        assert torch.equal(found[0], up * b) and torch.equal(found[1], up * a)


def test_gradients_that_never_return_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MOST_GRADIENTS", 4)
    plan = a_plan(A)
    for n in range(20):
        plan.within(lambda n=n: repeated("any", lambda a: (a,), (A,), (), (n,)))  # type: ignore[misc]
    assert set(plan.recorded.values()) <= {SEEN, NEVER} and len(plan.recorded) == 4
