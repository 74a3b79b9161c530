"""Operations under what follows or transforms programs: as operators `nsa::NAME`, with the results of plain calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils import checkpoint

from nsa import NativeSparseAttention, NSACache, flags, library, nsa_attention, ops, routing
from nsa.operations import OPERATIONS
from nsa.providers import cuda
from nsa.tests.following import Following
from nsa.tests.kernel_cases import BRANCHES, DEVICE, SMALL
from nsa.tests.testing import TOLERANCES, expect_route, need_cuda

needs_graphs = pytest.mark.skipif(not library.IN_GRAPHS, reason="operators in graphs need torch 2.5")
BACKENDS = ("torch", pytest.param("triton", marks=pytest.mark.triton))
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32


def inputs(*, tokens: int = 20, grad: bool = True) -> list[Tensor]:
    """q, k, v and gates."""
    shapes = (1, tokens, 4, 16), (1, tokens, 2, 16), (1, tokens, 2, 16), (1, tokens, 4, 3)
    return [torch.rand(shape, device=DEVICE, dtype=DTYPE, requires_grad=grad) for shape in shapes]


def around(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, backend: str = "torch") -> Tensor:
    """Something before the operation and after it."""
    o = nsa_attention(q * 2, k, v, gates, SMALL, backend=backend, deterministic=True)
    assert isinstance(o, Tensor)
    return o.sin()


def first(q: Tensor) -> Tensor:
    """The first block for every query."""
    return torch.zeros(*q.shape[:2], 2, 1, dtype=torch.int32, device=q.device)


def single(name: str) -> Callable[..., Any]:
    """One operation of q, k, v and gates."""
    calls: dict[str, Callable[..., Any]] = {
        "compress": lambda q, k, v, gates: ops.compress(k, SMALL),
        "compressed_attention": lambda q, k, v, gates: ops.compressed_attention(q, k[:, :4], v[:, :4], SMALL),
        "select_blocks": lambda q, k, v, gates: ops.select_blocks(q, k[:, :4], SMALL),
        "selected_attention": lambda q, k, v, gates: ops.selected_attention(q, k, v, first(q), SMALL, return_lse=True),
        "sliding_window_attention": lambda q, k, v, gates: ops.sliding_window_attention(q, k, v, 5, return_lse=True),
        "rotate": lambda q, k, v, gates: ops.rotate(q, torch.arange(q.shape[1], device=q.device)[None], 1e4),
        "gated_combine": lambda q, k, v, gates: ops.gated_combine(q, q * 2, q * 3, gates),
        "nsa_attention": lambda q, k, v, gates: nsa_attention(q, k, v, gates, SMALL, return_lse=True),
    }
    return calls[name]


NAMES = sorted(OPERATIONS)


def flat(x: Any) -> list[Tensor]:
    return [x] if isinstance(x, Tensor) else [z for y in x for z in flat(y)]


def gradients(function: Callable[..., Any], tensors: list[Tensor]) -> list[Tensor]:
    """Results, then gradients; those that are missing left out."""
    results = flat(function(*tensors))
    if not results[0].requires_grad:
        return results
    up = torch.linspace(-1, 1, results[0].numel(), device=DEVICE).to(results[0].dtype).view_as(results[0])
    found = torch.autograd.grad(results[0], tensors, up, allow_unused=True)
    return [x.detach() for x in results] + [x for x in found if x is not None and x.any()]


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    torch.compiler.reset()


@needs_graphs
@pytest.mark.parametrize("name", NAMES)
def test_one_graph_of_each(name: str) -> None:
    tensors, function = inputs(), single(name)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    same(gradients(compiled, tensors), gradients(function, tensors))


@needs_graphs
@pytest.mark.triton
def test_one_graph_of_the_kernels() -> None:
    function = partial(around, backend="triton")
    tensors, compiled = inputs(), torch.compile(function, backend="aot_eager", fullgraph=True)
    with expect_route(**dict.fromkeys(BRANCHES, "triton")):
        found = gradients(compiled, tensors)
    same(found, gradients(function, tensors))


@needs_graphs
def test_one_graph_of_a_layer() -> None:
    layer = NativeSparseAttention(64, 4, 2, SMALL).to(DEVICE)
    x = torch.rand(1, 20, 64, device=DEVICE)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), layer(x))


@needs_graphs
@pytest.mark.parametrize("phi", ["mean", "mlp"])
def test_one_graph_of_a_layer_with_a_cache(phi: str) -> None:
    layer = NativeSparseAttention(32, 2, 1, SMALL, phi=phi).to(DEVICE)
    compiled, cache = torch.compile(layer, backend="aot_eager", fullgraph=True), layer.new_cache(1)
    x = torch.rand(1, 20, 32, device=DEVICE)
    with torch.no_grad():
        found = torch.cat([compiled(part, cache) for part in x.split((19, 1), dim=1)], dim=1)
        torch.testing.assert_close(found, layer(x))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_followed_gradients_are_those_of_a_plain_call(name: str, backend: str) -> None:
    """Where a mode sees the backward pass too, autograd is off unless it is asked for."""
    tensors, function = inputs(), single(name)
    with flags.using(backend=backend, triton_sel_force=backend == "triton"):
        expected = gradients(function, tensors)
        with Following():
            found = gradients(function, tensors)
    for x, y in zip(found, expected, strict=True):  # PyTorch's sums on a GPU add in the order of the moment
        tolerance = TOLERANCES.get(x.dtype, 0.0)
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


@needs_graphs
@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known, called = OPERATIONS[name], []
    forward = known.forward
    monkeypatch.setattr(known, "forward", lambda *x: (called.append(x), forward(*x))[1])
    monkeypatch.setattr(library, "is_compiling", lambda: True)
    single(name)(*inputs())
    monkeypatch.undo()
    torch.library.opcheck(
        forward, called[0], test_utils=("test_schema", "test_faketensor", "test_autograd_registration")
    )


class Around(torch.nn.Module):
    def forward(self, *tensors: Tensor) -> Tensor:
        return around(*tensors)


@needs_graphs
@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    tensors = inputs(grad=False)
    program = torch.export.export(Around(), tuple(tensors), strict=strict)
    assert any(node.target is torch.ops.nsa.attention.default for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*tensors), around(*tensors))


@needs_graphs
@pytest.mark.parametrize("late", [0, 6], ids=["packed", "after-earlier-keys"])
def test_export_of_packed_sequences(late: int) -> None:
    class Packed(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor, borders: Tensor, of_keys: Tensor) -> Tensor:
            where = {"cu_seqlens": borders, "cu_seqlens_k": of_keys if late else None}
            return nsa_attention(q[:, late:], k, v, gates[:, late:], SMALL, **where) * 2  # type: ignore[operator]

    def given(border: int) -> tuple[Tensor, ...]:
        of_keys = torch.tensor([0, border, 20], device=DEVICE)
        return *inputs(grad=False), (of_keys - late).clamp(min=0), of_keys

    program = torch.export.export(Packed(), given(7), strict=True)
    others = given(13)
    torch.testing.assert_close(program.module()(*others), Packed()(*others))


@needs_graphs
@pytest.mark.parametrize("inference", [False, True])
def test_a_graph_that_ends_before_an_operator_leaves_out_what_it_runs(inference: bool) -> None:
    """No graph knows how many compressed tokens packed sequences have: then routing and plans were compiled. In
    inference mode autograd, where else what runs is left out, is passed by.
    """
    layer = NativeSparseAttention(64, 4, 2, SMALL, phi="weighted").to(DEVICE)
    x, borders = torch.randn(1, 20, 64, device=DEVICE), torch.tensor([0, 7, 20], device=DEVICE)
    torch._dynamo.reset()
    with torch.inference_mode(inference):
        found = torch._dynamo.explain(lambda x: layer(x, cu_seqlens=borders))(x)
    ends = {Path(reason.user_stack[-1].filename).name for reason in found.break_reasons}
    assert found.break_reasons and ends == {"library.py"}


class Named(Tensor):
    """Follows functions, as any subclass of tensors does, and no operators."""


@pytest.mark.parametrize("name", NAMES)
def test_a_subclass_of_tensors(name: str) -> None:
    torch.manual_seed(0)
    tensors = inputs()
    named = [x.detach().as_subclass(Named).requires_grad_() for x in tensors]
    found = gradients(single(name), named)
    assert all(isinstance(x, Named) for x in flat(single(name)(*named)))
    same([x.as_subclass(Tensor) for x in found], gradients(single(name), tensors))


def test_a_layer_of_fakes_then_a_real_one() -> None:
    def called() -> Tensor:
        with torch.device(DEVICE):
            return NativeSparseAttention(64, 4, 2, SMALL)(torch.rand(1, 20, 64))

    with FakeTensorMode():
        faked = called()
    assert called().shape == faked.shape


@pytest.mark.parametrize("name", NAMES)
def test_fake_then_real(name: str) -> None:
    with FakeTensorMode():
        faked = flat(single(name)(*inputs(grad=False)))
    real = flat(single(name)(*inputs(grad=False)))
    layouts = [[(x.shape, x.dtype, x.stride(), x.device) for x in results] for results in (faked, real)]
    assert layouts[0] == layouts[1]
    assert all(type(x) is Tensor and x.isfinite().any() for x in real)


@needs_graphs
@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoints(backend: str) -> None:
    """Full, and by operator: then it is computed once."""

    def policy(context: Any, operator: Any, *args: object, **kwargs: object) -> checkpoint.CheckpointPolicy:
        ours = operator is torch.ops.nsa.attention.default
        return checkpoint.CheckpointPolicy.MUST_SAVE if ours else checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    tensors, function = inputs(), partial(around, backend=backend)
    chosen = partial(checkpoint.create_selective_checkpoint_contexts, policy)
    expected = gradients(function, tensors)
    full = partial(checkpoint.checkpoint, function, use_reentrant=False)
    same(gradients(full, tensors), expected)
    with routing.record() as once:
        o = full(*tensors, context_fn=chosen)
        assert (count := len(once))
        found = torch.autograd.grad(o, tensors, torch.ones_like(o))
        assert backend == "torch" or len(once) == count
    same(list(found), list(torch.autograd.grad(function(*tensors), tensors, torch.ones_like(o))))


@needs_graphs
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"select_blocks"}))
def test_autocast(name: str) -> None:
    """Computed in the autocast dtype, plainly and by the operator; gradients come back in the inputs' own."""
    tensors = [x.detach().float().requires_grad_() for x in inputs()]
    with torch.autocast(DEVICE, torch.bfloat16):
        o = flat(single(name)(*tensors))[0]
        again = flat(torch.compile(single(name), backend="aot_eager", fullgraph=True)(*tensors))[0]
    assert o.dtype == again.dtype == torch.bfloat16
    torch.testing.assert_close(o, again)
    found = [x for x in torch.autograd.grad(o.float().sum(), tensors, allow_unused=True) if x is not None]
    assert found and all(x.dtype == torch.float32 for x in found)


@needs_graphs
def test_a_decode_step_in_one_graph() -> None:
    def steps(function: Callable[..., Tensor]) -> list[Tensor]:
        torch.manual_seed(1)
        cache = NSACache(SMALL, 1, 2, 16, 16, capacity=32, dtype=DTYPE, device=DEVICE)
        with torch.no_grad():
            return [function(*inputs(tokens=n, grad=False), cache) for n in (8, 1, 1)]

    def step(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, cache: NSACache) -> Tensor:
        return ops.nsa_decode(q, k, v, gates, cache) * 2

    same(steps(torch.compile(step, backend="aot_eager", fullgraph=True)), steps(step))


@pytest.mark.parametrize("backend", BACKENDS)
def test_lse_of_the_whole_is_that_of_its_operations(backend: str) -> None:
    config, how = replace(SMALL, n_sel=1, init_blocks=0, local_blocks=1, w=5), {"backend": backend}  # all differ
    q, k, v, gates = inputs(grad=False)
    _, (cmp, sel, win) = nsa_attention(q, k, v, gates, config, return_lse=True, **how)
    k_cmp, v_cmp = (ops.compress(x, config, **how) for x in (k, v))
    chosen = ops.select_blocks(q, k_cmp, config, **how)
    torch.testing.assert_close(cmp, ops.compressed_attention(q, k_cmp, v_cmp, config, **how)[1])
    torch.testing.assert_close(sel, ops.selected_attention(q, k, v, chosen, config, return_lse=True, **how)[1])
    torch.testing.assert_close(win, ops.sliding_window_attention(q, k, v, config.w, return_lse=True, **how)[1])
    logits = torch.einsum("bthd,bshd->bths", q.float(), k.repeat_interleave(2, 2).float()) / 4
    at = torch.arange(20, device=DEVICE)
    seen = (at <= at[:, None]) & (at > at[:, None] - config.w)
    torch.testing.assert_close(win, logits.masked_fill(~seen[:, None], -torch.inf).logsumexp(-1), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(sel, win)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_of_fixed_sizes_is_refused() -> None:
    layer = NativeSparseAttention(8, 2, 1)
    with pytest.raises(RuntimeError, match=r"torch\.jit\.trace is not supported"):
        torch.jit.trace(layer, (torch.randn(1, 5, 8),))


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_a_functorch_transform_is_refused(transform: str) -> None:
    """As forward-mode gradients are: no number comes out that misses a part."""
    q, *others = inputs(grad=False)
    calls = {
        "grad": lambda f: torch.func.grad(f)(q),
        "vmap": lambda f: torch.func.vmap(f)(q[None]),
        "jvp": lambda f: torch.func.jvp(f, (q,), (q,)),
    }
    with pytest.raises(RuntimeError, match=r"attention: torch\.func's grad, vmap and jvp are not"):
        calls[transform](lambda q: nsa_attention(q, *others, SMALL).sum())


@pytest.mark.parametrize("within", [nullcontext, Following], ids=["plain", "followed"])
def test_a_forward_mode_gradient_is_refused(within: Callable[[], AbstractContextManager[Any]]) -> None:
    q, *others = inputs(grad=False)
    refused = pytest.raises(RuntimeError, match="nsa: forward-mode gradients are not computed")
    with forward_ad.dual_level(), within(), refused:
        nsa_attention(forward_ad.make_dual(q, q), *others, SMALL)


def test_what_gives_no_lse_says_so() -> None:
    facts = torch.device("cuda"), torch.float16, 1, 20, 20, 4, 2, 16, 16, SMALL
    assert "no log-sum-exps" in str(cuda.supports(routing.Request("selected", *facts, lse=True)))
    assert "no log-sum-exps" not in str(cuda.supports(routing.Request("selected", *facts)))


# --- CUDA graphs ---

LAYOUTS = range(21, 101)
"""Tokens of other calls: more kinds than anything remembers that a captured one would use."""


@pytest.mark.cuda
@pytest.mark.parametrize("compiled", [False, True])
def test_a_captured_gradient(compiled: bool) -> None:
    """Forward and backward in a CUDA graph, replayed after calls of 80 other layouts."""
    need_cuda(None, "")
    function = partial(around, backend="triton")
    tensors = inputs()
    run = torch.compile(function, backend="aot_eager", fullgraph=True) if compiled else function
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            gradients(run, tensors)
    torch.cuda.current_stream().wait_stream(stream)
    graph, up = torch.cuda.CUDAGraph(), torch.ones(1, 20, 4, 16, device=DEVICE, dtype=DTYPE)
    with torch.cuda.graph(graph):
        found = torch.autograd.grad(run(*tensors), tensors, up)
    for tokens in LAYOUTS:
        gradients(function, inputs(tokens=tokens))
    torch.full((1 << 20,), 7, dtype=torch.int32, device=DEVICE)  # what was freed is written over
    fresh = inputs()
    for x, y in zip(tensors, fresh, strict=True):
        x.data.copy_(y.data)
    graph.replay()
    same(list(found), list(torch.autograd.grad(function(*fresh), fresh, up)))


@pytest.mark.cuda
@pytest.mark.parametrize("grad", [False, True])
def test_a_compiled_model_that_makes_graphs_of_itself(grad: bool) -> None:
    """Its first call is the first of all: what it makes is allocated from the graphs' memory, which is given away."""
    need_cuda(None, "")
    function = partial(around, backend="triton")
    run = torch.compile(function, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):  # prepared, captured, replayed
        tensors = inputs(grad=grad)
        torch.compiler.cudagraph_mark_step_begin()
        o = run(*tensors)
        found = [x.clone() for x in (o, *(torch.autograd.grad(o.sum(), tensors) if grad else ()))]
        expected = function(*tensors)
        same(found, [expected, *(torch.autograd.grad(expected.sum(), tensors) if grad else ())])
