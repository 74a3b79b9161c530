"""What a user of the library meets first: defaults, names at the top, packed borders, gradients, what it imports."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import nsa
from nsa import NativeSparseAttention, NSAConfig, explain_routing, nsa_attention, nsa_decode, ops, reference
from nsa.tests.decoding import SMALL, Inputs
from nsa.tests.following import Following
from nsa.tests.testing import Problem, assert_close

ROOT = Path(nsa.__file__).parents[1]
WITH_CONFIG = [
    *(getattr(ops, name) for name in ops.__all__ if "config" in inspect.signature(getattr(ops, name)).parameters),
    *(
        getattr(reference, name)
        for name in ("compress", "compressed_attention", "select_blocks", "selected_attention", "nsa_attention")
    ),
    explain_routing,
]


@pytest.mark.parametrize("function", WITH_CONFIG, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_the_paper_s_sizes_are_the_default(function: Callable[..., object]) -> None:
    assert inspect.signature(function).parameters["config"].default == NSAConfig()


def test_without_a_config_it_computes_with_the_paper_s_sizes() -> None:
    problem = Problem(NSAConfig(), tokens=70, kv_heads=1, group_size=2)
    x = problem.tensors()
    plain = nsa_attention(x["q"], x["k_sel"], x["v_sel"], x["gates"])
    assert torch.equal(plain, nsa_attention(x["q"], x["k_sel"], x["v_sel"], x["gates"], NSAConfig()))


def test_the_top_has_what_a_user_needs() -> None:
    assert nsa.nsa_decode is ops.nsa_decode
    assert f'__version__ = "{nsa.__version__}"' in (ROOT / "orchestrator/__init__.py").read_text()


def test_the_oracle_has_every_operation() -> None:
    assert all(callable(getattr(reference, name)) for name in ops.__all__)


def test_borders_may_be_int64() -> None:
    x = torch.randn(1, 60, 32)
    q, k, v, gates = (
        torch.randn(1, 60, 4, 8),
        torch.randn(1, 60, 2, 8),
        torch.randn(1, 60, 2, 6),
        torch.rand(1, 60, 4, 3),
    )
    k_cmp = ops.compress(k, SMALL, cu_seqlens=torch.tensor([0, 21, 60]))
    layer = NativeSparseAttention(32, 4, 2, SMALL)
    calls: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda cu: nsa_attention(q, k, v, gates, SMALL, cu_seqlens=cu),
        lambda cu: ops.compress(v, SMALL, cu_seqlens=cu),
        lambda cu: ops.select_blocks(q, k_cmp, SMALL, cu_seqlens=cu),
        lambda cu: ops.compressed_attention(q, k_cmp, k_cmp, SMALL, cu_seqlens=cu)[0],
        lambda cu: ops.sliding_window_attention(q, k, v, 7, cu_seqlens=cu),
        lambda cu: ops.selected_attention(q, k, v, torch.zeros(1, 60, 2, 1).int(), SMALL, cu_seqlens=cu),
        lambda cu: layer(x, cu_seqlens=cu),
        lambda cu: reference.compress(k, SMALL, cu_seqlens=cu),
    ]
    for call in calls:
        borders = torch.tensor([0, 21, 60])
        assert borders.dtype == torch.int64 and torch.equal(call(borders), call(borders.int()))


@pytest.mark.parametrize("followed", [False, True], ids=["plain", "operators"])
def test_a_gradient_of_a_gradient_is_an_error(followed: bool) -> None:
    """Also where it reaches the input on another way, by which PyTorch would give a part of it."""
    layer = NativeSparseAttention(32, 4, 2, SMALL)
    x = torch.randn(1, 30, 32, requires_grad=True)
    with Following() if followed else nullcontext():
        (first,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="a gradient of a gradient is not computed"):
            torch.autograd.grad(first.sum(), x)


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize(("first", "second"), [("q", "k_cmp_in"), ("k_cmp_in", "k_cmp_in"), ("v_win", "v_cmp_in")])
def test_a_gradient_of_a_gradient_is_right_or_an_error(backend: str, first: str, second: str) -> None:
    """Also of keys that the kernels do not keep, planned, recorded and repeated; each is reached elsewhere too."""
    if backend == "triton":
        pytest.importorskip("triton")
    problem = Problem(SMALL, tokens=24)

    def twice(function: Callable[..., torch.Tensor], **options: str) -> torch.Tensor:
        x = {name: y.requires_grad_() for name, y in problem.tensors().items()}
        total = problem.attention(function, **options)(**x).sum() + x[first].square().sum() * x[second].sum()
        (once,) = torch.autograd.grad(total, x[first], create_graph=True)
        return torch.autograd.grad(once.sum(), x[second])[0]

    expected = twice(reference.nsa_attention)
    for _ in range(3):
        try:
            found = twice(nsa_attention, backend=backend)
        except RuntimeError as error:
            assert "a gradient of a gradient is not computed" in str(error)
        else:
            assert_close(found, expected, torch.float32)


def test_what_no_gradient_reaches_has_none_before_a_kernel_either() -> None:
    pytest.importorskip("triton")
    q, k, v = (torch.randn(1, 20, 1, 16, requires_grad=True) for _ in range(3))
    for _ in range(3):
        o = ops.sliding_window_attention(q, k, v, 5, backend="triton")
        assert torch.autograd.grad(Unreached.apply(o), q, torch.ones_like(o), allow_unused=True) == (None,)


class Unreached(torch.autograd.Function):
    """The identity, of which no gradient is known."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> None:
        return None


def test_without_memory_there_are_shapes() -> None:
    layer = NativeSparseAttention(32, 4, 2, SMALL).to("meta")
    x = torch.randn(2, 30, 32, device="meta", requires_grad=True)
    o = layer(x)
    o.sum().backward()
    assert o.device.type == "meta" and o.shape == x.shape == x.grad.shape


@pytest.mark.parametrize("page_size", [None, 8])
def test_the_default_device_is_of_no_account(page_size: int | None) -> None:
    """As the inputs' own is: who sets another one (here one without memory) gets the same."""
    inputs, borders, start = Inputs.random(60), torch.tensor([0, 7, 7, 60]), torch.tensor([0, 0])
    row = [x[:1] for x in (inputs.q, inputs.k[0], inputs.v[0], inputs.gates)]

    def results() -> list[torch.Tensor]:
        cache = inputs.cache(SMALL, page_size=page_size)
        found = [inputs.whole(SMALL), nsa_attention(*row, SMALL, cu_seqlens=borders)]
        found += [ops.sliding_window_attention(inputs.q, inputs.k[0], inputs.v[0], 5, q_start=start)]
        for counts in ([9, 4], [1, 1], [0, 1]):
            found.append(inputs.between(0, max(counts)).decode(cache, counts))
            cache.reorder([1, 0, 0][: len(cache.lengths)])
        return [*found, cache.lengths]

    expected = results()
    with torch.device("meta"):
        found = results()
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


@pytest.mark.parametrize("phi", ["mean", "weighted", "mlp"])
def test_no_span_is_a_gradient_of_zero(phi: str) -> None:
    """And none that is missing, for which a distributed trainer would wait."""
    layer = NativeSparseAttention(32, 4, 2, SMALL, phi=phi)
    for where in ({}, {"cu_seqlens": torch.tensor([0, 3, 7])}):
        layer.zero_grad()
        layer(torch.randn(1, SMALL.l - 1, 32), **where).sum().backward()
        assert all(x.grad is not None for x in layer.parameters())


@pytest.mark.parametrize("tokens", [1, 9])
def test_a_gradient_through_a_cache_is_an_error(tokens: int) -> None:
    """It would leave out what flows through the tokens that the cache holds."""
    layer = NativeSparseAttention(32, 4, 2, SMALL)
    x = torch.randn(1, tokens, 32, requires_grad=True)
    o = layer(x, layer.new_cache(1))
    with pytest.raises(RuntimeError, match="no gradient flows through a cache"):
        o.sum().backward()
    assert x.grad is None
    with torch.no_grad():
        torch.testing.assert_close(layer(x, layer.new_cache(1)), o.detach())


def test_a_step_whose_inputs_need_no_gradient_has_none() -> None:
    token = Inputs.random(1)
    cache = token.cache(SMALL)
    assert not nsa_decode(token.q, token.k, token.v, token.gates, cache).requires_grad
    o, _ = ops.cached_attention(token.q.requires_grad_(), token.gates, cache)
    with pytest.raises(RuntimeError, match="no gradient flows through a cache"):
        o.sum().backward()


def test_the_library_runs_without_the_tool_s_packages() -> None:
    """`pip install --no-deps` of this project, and PyTorch, is enough."""
    code = """
import sys
for name in ("fabric", "paramiko", "invoke", "click", "pydantic", "rich", "packaging", "orchestrator", "yaml"):
    sys.modules[name] = None
import torch
from nsa import NativeSparseAttention, NSAConfig
import nsa.bench, nsa.check_env, nsa.sanity, nsa.models, nsa.routing.__main__
layer = NativeSparseAttention(32, 4, 2, NSAConfig(l=8, d=4, l_sel=8, n_sel=4, w=13), backend="torch")
layer(torch.randn(1, 40, 32)).sum().backward()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
