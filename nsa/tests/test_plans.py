"""Plans: not more than so many, nothing that would let a wrong call pass, and those of their owner's."""

from __future__ import annotations

import copy
import gc
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

import pytest
import torch
from torch import Tensor

import nsa
from nsa import flags, nsa_attention, ops, plans, routing
from nsa.config import NSAConfig
from nsa.operations import OPERATIONS
from nsa.phi import WeightedPhi
from nsa.plans import PLANS, Plan, Store, constant
from nsa.tests.kernel_cases import DEVICE, SLOW

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)


def _arguments() -> dict[str, Any]:
    shapes = {"q": (4, 16), "k": (2, 16), "v": (2, 16), "gates": (4, 3)}
    return {name: torch.randn(1, 19, *shape) for name, shape in shapes.items()}


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A name for each call whose arguments were looked at, with nothing known at the start."""
    found: list[str] = []
    whole = OPERATIONS["nsa_attention"]
    check = whole.demands
    monkeypatch.setattr(whole, "demands", lambda *x: (found.append("looked"), check(*x)))
    return found


def test_arguments_that_went_together_are_not_looked_at_again(looked_at: list[str]) -> None:
    for _ in range(3):
        nsa_attention(**_arguments(), config=CONFIG)
    assert len(looked_at) == 1
    nsa_attention(**{**_arguments(), "q": torch.randn(1, 19, 6, 16), "gates": torch.randn(1, 19, 6, 3)}, config=CONFIG)
    assert len(looked_at) == 2


def _longer(x: Tensor) -> Tensor:
    return torch.cat([x, x[:, :1]], 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: {"q": x["q"].half()}, "must have the dtype and device of q"),
        (lambda x: {"k": _longer(x["k"]), "v": _longer(x["v"])}, "has 20"),
        (lambda x: {"v": _longer(x["v"])}, r"v must have the shape \[B=1,Tk=19,Hkv=2,Dv\]"),
        (lambda x: {"gates": x["gates"][..., :2]}, "gates must have the shape"),
        (lambda x: {y: (x[y], x[y], _longer(x[y])) for y in "kv"}, r"k must have the shape \[B=1,Tk=19,Hkv=2,Dk=16\]"),
        (lambda x: {"compressed": (x["k"][:, :1], x["v"][:, :1])}, "must hold 3 compressed tokens"),
        (lambda x: {"compressed": x["k"]}, "must be a pair"),
        (lambda x: {"cu_seqlens": torch.tensor([0, 5, 18], dtype=torch.int32)}, "must rise from 0 to T=19"),
        (lambda x: {"q_start": torch.tensor([3])}, "do not fit in 19 keys"),
        (lambda x: {"block_indices": torch.full((1, 19, 2, 1), 7, dtype=torch.int32)}, "block_indices"),
    ],
    ids=["dtype", "more keys", "more values", "gates", "branches", "means", "no pair", "borders", "start", "blocks"],
)
def test_a_wrong_call_is_refused_after_right_ones(change: Any, words: str, looked_at: list[str]) -> None:
    x = _arguments()
    for _ in range(2):
        nsa_attention(**x, config=CONFIG)
    with pytest.raises(ValueError, match=words):
        nsa_attention(**{**x, **change(x)}, config=CONFIG)


def test_which_arguments_are_one_tensor_is_a_fact(looked_at: list[str]) -> None:
    """The same layouts in the same order, but another tensor given twice."""
    narrow, wide = torch.randn(1, 19, 2, 3), torch.randn(1, 19, 2, 16)
    nsa_attention(narrow, narrow, wide, narrow.clone(), CONFIG)
    with pytest.raises(ValueError, match=r"k must have the shape \[B=1,Tk,Hkv,Dk=3\]"):
        nsa_attention(narrow, wide, narrow.clone(), narrow, CONFIG)
    assert len(looked_at) == 2


def test_what_tensors_hold_is_looked_at_each_time(looked_at: list[str]) -> None:
    for border in (5, 9):
        nsa_attention(**_arguments(), config=CONFIG, cu_seqlens=torch.tensor([0, border, 19], dtype=torch.int32))
    with pytest.raises(ValueError, match=r"must rise from 0 to T=19, got \[0, 20, 19\]"):
        nsa_attention(**_arguments(), config=CONFIG, cu_seqlens=torch.tensor([0, 20, 19], dtype=torch.int32))
    assert len(looked_at) == 1


class Branches(NamedTuple):
    """A triple of the caller's own kind."""

    cmp: torch.Tensor
    sel: torch.Tensor
    win: torch.Tensor


def test_a_key_holds_no_tensor() -> None:
    x = _arguments()
    held = [ref(tensor) for tensor in x.values()]
    bundles = ((x["k"],) * 3, [x["k"], x["k"], x["k"]], Branches(x["k"], x["k"], x["k"].clone()), x["k"])
    expected = nsa_attention(**x, config=CONFIG)
    for bundle in bundles:
        assert torch.equal(nsa_attention(**{**x, "k": bundle}, config=CONFIG), expected)
    weight = torch.full((2, 8), 1 / 8)
    torch.testing.assert_close(ops.compress(x["k"], CONFIG, phi=WeightedPhi(weight)), ops.compress(x["k"], CONFIG))
    del x, bundles, bundle, weight
    gc.collect()
    assert len(PLANS) and not any(reference() is not None for reference in held)


def test_one_and_true_are_two_windows() -> None:
    x = _arguments()
    ops.sliding_window_attention(x["q"], x["k"], x["v"], 1)
    for window in (True, 1.0):
        with pytest.raises(TypeError, match="window must be an integer"):
            ops.sliding_window_attention(x["q"], x["k"], x["v"], window)  # type: ignore[arg-type]


def test_what_is_asked_for_is_a_fact_of_its_own(looked_at: list[str]) -> None:
    x = _arguments()
    for _ in range(2):
        for grad in (False, True, False):
            x["v"].requires_grad_(grad)
            nsa_attention(**x, config=CONFIG)
        with torch.no_grad():
            nsa_attention(**{**x, "v": x["v"].detach().requires_grad_()}, config=CONFIG)
        with flags.using(use_fa2=True):
            nsa_attention(**x, config=CONFIG)
        torch.use_deterministic_algorithms(True)
        try:
            nsa_attention(**x, config=CONFIG)
        finally:
            torch.use_deterministic_algorithms(False)
        nsa_attention(**x, config=NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20), backend="torch")
    found = [plan.request for plan in PLANS if plan.request.operation == "attention"]
    assert [request.needs_grad for request in found].count(True) == 1
    assert [request.deterministic for request in found].count(True) == 1
    assert len(looked_at) == len(found) == 6  # flags that were set anew are others each time


def test_a_choice_of_backends_is_the_callers_own() -> None:
    routing.per_operation("torch").clear()
    assert routing.per_operation("torch")["window"] == "torch"


# --- how many are kept ---


def _plan(name: str) -> Plan:
    facts = torch.device("cpu"), torch.float32, 1, 8, 8, 2, 1, 16, 16
    return Plan((name,), routing.Request("window", *facts), None, flags.current())


def test_the_plan_that_was_not_used_for_longest_goes() -> None:
    store = Store(3)
    plans = {name: _plan(name) for name in "abcd"}
    for name in "abc":
        store.add(plans[name])
    store.get(("a",))
    store.add(plans["d"])
    assert [store.get((name,)) for name in "abcd"] == [plans["a"], None, plans["c"], plans["d"]]


def test_what_plans_hold_is_bounded_in_bytes() -> None:
    store = Store(10, most_bytes=4000)
    for number in range(6):
        plan = _plan(str(number))
        store.add(plan)
        plan.hold(("made",), torch.zeros(250))
        store.trim()
    assert len(store) == 4 and sum(plan.nbytes for plan in store) == 4000
    alone = _plan("alone")
    alone.hold(("made",), torch.zeros(2000))
    store.add(alone)
    assert list(store) == [alone]  # the one that is in use stays, whatever it holds


def test_threads_and_layouts_in_turn() -> None:
    """More kinds than are kept, from several threads at once: every result is that of its own call."""
    inputs = {tokens: [torch.randn(1, tokens, n, 8) for n in (2, 1, 1)] for tokens in range(5, 17)}
    expected = {tokens: ops.sliding_window_attention(*x, 3) for tokens, x in inputs.items()}
    PLANS.clear()
    most, PLANS.most = PLANS.most, 4
    wrong: list[int] = []

    def calls(first: int) -> None:
        for number in range(60):
            tokens = 5 + (first + number * 5) % 12
            with torch.no_grad():
                if not torch.equal(ops.sliding_window_attention(*inputs[tokens], 3), expected[tokens]):
                    wrong.append(tokens)

    threads = [threading.Thread(target=calls, args=(first,)) for first in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        PLANS.most = most
    assert not wrong and len(PLANS) <= 4


def test_what_a_graph_reads_is_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    @constant
    def made(size: int, device: torch.device) -> torch.Tensor:
        return torch.full((1,), size, device=device)

    device, layouts = torch.device("cpu"), range(PLANS.most + 80)

    def of(name: str, size: int) -> torch.Tensor:
        plan = PLANS.get((name,))
        if plan is None:
            PLANS.add(plan := _plan(name))
        plan.enter()
        return plan.within(lambda: made(size, device))  # type: ignore[no-any-return]

    captured, other = of("captured", 20), ref(of("other", 19))
    monkeypatch.setattr(plans, "capturing", lambda device: True)
    assert of("captured", 20) is captured
    in_graph = of("captured", 18)
    monkeypatch.undo()
    held = ref(captured)
    del captured
    for size in layouts:
        of(str(size), size)
    gc.collect()
    assert held() is not None and other() is None
    assert of("captured", 18) is not in_graph  # which was the graph's, and held nothing yet
    PLANS.pinned.clear()


# --- what a plan's tensors are made of, and when ---


def test_what_is_kept_is_not_of_the_callers_memory_or_mode() -> None:
    """A compiled model that prepares CUDA graphs has all that a thread allocates made of their memory."""
    threads: list[int] = []

    @constant
    def inner(device: torch.device) -> Tensor:
        threads.append(threading.get_ident())
        return torch.zeros(3, device=device)

    @constant
    def outer(device: torch.device) -> Tensor:
        threads.append(threading.get_ident())
        return inner(device) + 1

    plan, device = _plan("made"), torch.device("cpu")
    with torch.inference_mode():
        made = plan.within(lambda: outer(device))
    assert made is plan.within(lambda: outer(device)) and not made.is_inference()
    assert len(plan.tensors) == 2 and len(threads) == 2 and threading.get_ident() not in threads
    assert outer(device) is not made and threads[2:] == [threading.get_ident()] * 2  # nobody keeps it


def test_what_fails_when_it_is_made_fails_where_it_was_asked_for() -> None:
    @constant
    def failing(device: torch.device) -> Tensor:
        raise MemoryError("no room")

    plan = _plan("failing")
    with pytest.raises(MemoryError, match="no room"):
        plan.within(lambda: failing(torch.device("cpu")))
    assert not plan.tensors and plans.ACTIVE.get() is None


def test_two_threads_that_make_the_same_keep_one() -> None:
    both = threading.Barrier(2)

    @constant
    def made(device: torch.device) -> Tensor:
        both.wait(10)
        return torch.zeros(3, device=device)

    plan, found = _plan("both"), []
    call = lambda: found.append(plan.within(lambda: made(torch.device("cpu"))))  # noqa: E731
    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] and plan.nbytes == 12


class _Stream:
    """Of a GPU that is not there: knows which works it comes after."""

    def __init__(self, number: int) -> None:
        self.cuda_stream, self.after = number, set[str]()

    def record_event(self) -> set[str]:
        return set(self.after)

    def wait_event(self, event: set[str]) -> None:
        self.after |= event


@dataclass
class _Made:
    """A tensor that one of its streams made, and which others its memory is kept for."""

    name: str
    streams: set[int]

    def record_stream(self, stream: _Stream) -> None:
        self.streams.add(stream.cuda_stream)

    def untyped_storage(self) -> Any:
        return torch.zeros(4).untyped_storage()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_who_reads_a_plans_tensors_comes_after_all_of_them(order: Sequence[int], monkeypatch: Any) -> None:
    """Three streams make what one plan holds, in turn, and one reads all of it."""
    streams = [_Stream(number) for number in range(3)]
    current = streams[0]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: current.cuda_stream, raising=False)
    monkeypatch.setattr(plans, "_tensors", lambda made: [made])
    request = routing.Request("window", torch.device("cuda", 0), torch.float32, 1, 8, 8, 2, 1, 16, 16)
    plan = Plan(("streams",), request, None, flags.current())
    made = []
    for number in (*order, *order):
        current = streams[number]
        name = str(len(made))
        made.append(_Made(name, {number}))
        current.after.add(name)
        plan.hold((name,), made[-1])
    for current in streams:
        plan.enter()
        assert current.after >= {x.name for x in made} and all(current.cuda_stream in x.streams for x in made)


# --- a plan of one's own ---


@pytest.mark.parametrize("backend", ["torch", pytest.param("triton", marks=[pytest.mark.triton, *SLOW])])
def test_an_own_plan_gives_what_the_function_gives(backend: str) -> None:
    x = {name: tensor.to(DEVICE).requires_grad_() for name, tensor in _arguments().items()}
    plan = nsa.plan(**x, config=CONFIG, backend=backend, deterministic=True)
    assert plan.request.needs_grad and (len(PLANS) == 0 or backend == "torch")
    for _ in range(2):
        x = {name: torch.randn_like(tensor).requires_grad_() for name, tensor in x.items()}
        found, expected = plan.run(**x), nsa_attention(**x, config=CONFIG, backend=backend, deterministic=True)
        assert torch.equal(found, expected)
        up = torch.randn_like(found)
        gradients = (torch.autograd.grad(o, list(x.values()), up) for o in (found, expected))
        assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
        with torch.no_grad():
            assert torch.equal(plan.run(**x), expected)


def test_an_own_plan_records_routes_and_gives_lse() -> None:
    x = _arguments()
    plan = nsa.plan(**x, config=CONFIG, return_lse=True, cu_seqlens=torch.tensor([0, 7, 19]))
    with routing.record() as recording:
        o, lse = plan.run(**x, cu_seqlens=torch.tensor([0, 9, 19]))
    expected = nsa_attention(**x, config=CONFIG, return_lse=True, cu_seqlens=torch.tensor([0, 9, 19]))
    assert torch.equal(o, expected[0]) and all(map(torch.equal, lse, expected[1]))
    assert {route.operation for route in recording} == {
        "compress", "compressed", "select", "selected", "window", "combine"
    }  # fmt: skip


def test_an_own_plan_takes_other_borders_of_keys() -> None:
    x = _arguments()
    late = {**x, "q": x["q"][:, 12:].contiguous(), "gates": x["gates"][:, 12:].contiguous()}

    def where(border: int) -> dict[str, torch.Tensor]:
        return {"cu_seqlens": torch.tensor([0, 3, 7]), "cu_seqlens_k": torch.tensor([0, border, 19])}

    plan = nsa.plan(**late, config=CONFIG, **where(9))
    assert torch.equal(plan.run(**late, **where(15)), nsa_attention(**late, config=CONFIG, **where(15)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: {"q": x["q"].half()}, r"q must be laid out as planned, \[1, 19, 4, 16\] .* got .* torch.float16"),
        (lambda x: {"k": x["k"].transpose(1, 2).contiguous().transpose(1, 2)}, "k must be laid out as planned"),
        (lambda x: {"v": (x["v"], x["v"], x["v"])}, r"v must be laid out as planned, .* got \(\[1, 19, 2, 16\]"),
        (lambda x: {"gates": x["gates"][:, :18]}, "gates must be laid out as planned"),
        (lambda x: {"cu_seqlens": torch.tensor([0, 19])}, "cu_seqlens must be laid out as planned, None, got"),
        (lambda x: {"gates": [1, 0, 0]}, r"gates must be laid out as planned, .* got \(1, 0, 0\)"),
        (lambda x: {"k": None}, "k must be laid out as planned, .* got None"),
        (lambda x: {"q": x["q"].requires_grad_()}, "gradients are wanted, and the plan was made for a call without"),
    ],
    ids=["dtype", "strides", "a triple", "length", "borders", "no tensors", "none", "gradients"],
)
def test_an_own_plan_refuses_another_layout(change: Any, words: str) -> None:
    x = _arguments()
    plan = nsa.plan(**x, config=CONFIG)
    with pytest.raises(ValueError, match=words):
        plan.run(**{**x, **change(x)})


def test_an_own_plan_tells_one_tensor_from_two() -> None:
    x = _arguments()
    plan = nsa.plan(**{**x, "v": x["k"]}, config=CONFIG)
    assert torch.equal(plan.run(**{**x, "v": x["k"]}), nsa_attention(**{**x, "v": x["k"]}, config=CONFIG))
    with pytest.raises(ValueError, match="one and the same when it was planned"):
        plan.run(**x)


def test_a_copy_of_who_owns_a_plan_has_it_too() -> None:
    x = _arguments()
    plan = nsa.plan(**x, config=CONFIG)
    assert torch.equal(copy.deepcopy({"plan": plan})["plan"].run(**x), plan.run(**x))


def test_an_own_plan_is_of_its_own_switches() -> None:
    x = _arguments()
    plan = nsa.plan(**x, config=CONFIG)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(ValueError, match="gradients are to be repeatable now"):
            plan.run(**x)
    finally:
        torch.use_deterministic_algorithms(False)
    with pytest.raises(TypeError, match="unexpected keyword"):
        nsa.plan(**x, confg=CONFIG)
