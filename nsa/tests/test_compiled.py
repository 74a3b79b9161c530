"""Operations in a model that `torch.compile` compiles: left out of the graphs, with the same results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from nsa import NativeSparseAttention, nsa_attention, ops
from nsa.ops.eager import eager
from nsa.testing import expect_route
from nsa.tests.kernel_cases import BRANCHES, DEVICE, SMALL


@pytest.fixture
def graphs() -> list[fx.GraphModule]:
    """What is compiled."""
    torch.compiler.reset()
    return []


def compiled(function: Callable[..., Tensor], graphs: list[fx.GraphModule]) -> Callable[..., Tensor]:
    def keep(graph: fx.GraphModule, example_inputs: list[Tensor]) -> fx.GraphModule:
        graphs.append(graph)
        return graph

    return torch.compile(function, backend=keep)  # type: ignore[no-any-return]


def called(graph: fx.GraphModule) -> list[str]:
    """The functions in a graph."""
    return [str(node.target) for node in graph.graph.nodes if node.op in ("call_function", "call_method")]


def inputs() -> list[Tensor]:
    shapes = (1, 40, 4, 16), (1, 40, 2, 16), (1, 40, 2, 16), (1, 40, 4, 3)
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32
    return [torch.rand(shape, device=DEVICE, dtype=dtype, requires_grad=True) for shape in shapes]


def around(q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    """Something to compile before the operation and after it."""
    return nsa_attention(q * 2, k, v, gates, SMALL, backend="triton").sin()


@pytest.mark.slow
@pytest.mark.triton
def test_the_whole_operation_and_its_gradients(graphs: list[fx.GraphModule]) -> None:
    function = compiled(around, graphs)
    for _ in range(4):  # the third call of a kind is replayed
        tensors = inputs()
        with expect_route(**dict.fromkeys(BRANCHES, "triton")):
            o = function(*tensors)
        expected = around(*tensors)
        assert torch.equal(o, expected)
        up = torch.rand_like(o)
        for x, y in zip(torch.autograd.grad(o, tensors, up), torch.autograd.grad(expected, tensors, up), strict=True):
            assert torch.equal(x, y)
    assert len(graphs) == 2 and all(len(called(graph)) == 1 for graph in graphs), [called(x) for x in graphs]


def test_every_public_operation_stays_out() -> None:
    assert all(getattr(ops, name).__code__ is eager(len).__code__ for name in ops.__all__)


def test_a_layer(graphs: list[fx.GraphModule]) -> None:
    layer = NativeSparseAttention(64, 4, 2, SMALL).to(DEVICE)
    x = torch.rand(1, 40, 64, device=DEVICE)
    torch.testing.assert_close(compiled(layer, graphs)(x), layer(x))
    assert sum("linear" in name for graph in graphs for name in called(graph)) == 5  # projections are compiled
