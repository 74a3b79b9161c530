"""The compression kernels against the oracle: means, turned or not, weighted sums, the MLP, and all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import NSAConfig, flags, nsa_attention, ops, reference, routing
from nsa.device import device_name
from nsa.kernels.compression import mean, mlp, weighted
from nsa.phi import MlpPhi, WeightedPhi
from nsa.routing import Request, policy
from nsa.tests.kernel_cases import CASES, DEVICE, DTYPES, SLOW, SMALL, judge, problems
from nsa.tests.testing import Outcome, Problem, expect_route

pytestmark = pytest.mark.triton


def _joined(branches: Iterable[Tensor]) -> Tensor:
    """Keys and values side by side, as the one output that is judged."""
    return torch.cat(tuple(branches), -1)


class _Means(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v, problem, rope):  # type: ignore[no-untyped-def]
        ctx.asked = k.shape[1], problem.config, problem.cu_seqlens_of_keys
        ctx.rope = rope
        return mean.forward(k, v, problem.config, ctx.asked[2], rope=rope)

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[no-untyped-def]
        return *mean.backward(*grads, *ctx.asked, rope=ctx.rope), None, None


def _oracle(problem: Problem, rope: float | None) -> Callable[..., Tensor]:
    def call(k: Tensor, v: Tensor) -> Tensor:
        k_cmp, v_cmp = (reference.compress(x, problem.config, cu_seqlens=problem.cu_seqlens_of_keys) for x in (k, v))
        if rope is not None:
            counts = [reference.compressed_count(n, problem.config) for n in problem.key_lengths]
            at = torch.tensor([[i * problem.config.d for count in counts for i in range(count)]])
            k_cmp = reference.rotate(k_cmp, at, rope)
        return _joined((k_cmp, v_cmp))

    return call


def _judge_mean(problem: Problem, rope: float | None = None) -> None:
    found = problem.tensors()
    judge(
        problem,
        {"k": found["k_cmp_in"], "v": found["v_cmp_in"]},
        lambda k, v: _joined(_Means.apply(k, v, problem, rope)),
        _oracle(problem, rope),
    )


@pytest.mark.parametrize("problem", problems())
def test_means(problem: Problem) -> None:
    _judge_mean(problem)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["packed", *(pytest.param(name, marks=SLOW) for name in CASES if name != "packed")])
def test_means_of_keys_are_turned(name: str, dtype: torch.dtype) -> None:
    _judge_mean(replace(CASES[name], device=DEVICE, dtype=dtype), rope=50.0)


@pytest.mark.parametrize("dk", [6, 96, 192, *(pytest.param(dk, marks=SLOW) for dk in (2, 64, 80, 128, 256))])
def test_pairs_lie_half_a_head_apart(dk: int) -> None:
    """Of 192 dimensions, which two tiles of 128 and 64 hold elsewhere, they would cross the tiles."""
    _judge_mean(Problem(SMALL, lengths=(19, 3, 23), kv_heads=2, dk=dk, dv=16, device=DEVICE), rope=10.0)


# --- as an operation ---


SMALLER = 0.25
"""So that gradients, sums over all spans, are of order one, as the tolerances are."""


def _phi(kind: str, problem: Problem, hidden: int = 24) -> dict[str, Tensor]:
    """The tensors of a learned map of keys, in the problem's dtype."""
    heads, l, dim = problem.kv_heads, problem.config.l, problem.dk  # noqa: E741  the paper's symbol
    shapes = {
        "mean": {},
        "weighted": {"weight": (heads, l)},
        "mlp": {
            "position": (heads, l, dim), "w_in": (heads, l * dim, hidden), "b_in": (heads, hidden),
            "w_out": (heads, hidden, dim), "b_out": (heads, dim),
        },
    }  # fmt: skip
    made = {}
    for name, shape in shapes[kind].items():
        size = shape[1] ** -0.5 if name.startswith("w_") else SMALLER
        made[name] = (torch.randn(shape) * size).to(problem.device, problem.dtype)
    return made


MAPS = {"mean": None, "weighted": WeightedPhi, "mlp": MlpPhi}


def _judge_map(kind: str, problem: Problem, **sizes: int) -> Outcome:
    """Output and gradients of x and of all parameters."""

    def of(function: Callable[..., Tensor], **how: object) -> Callable[..., Tensor]:
        def call(x: Tensor, **parameters: Tensor) -> Tensor:
            phi = None if MAPS[kind] is None else MAPS[kind](**parameters)
            return function(x, problem.config, phi=phi, cu_seqlens=problem.cu_seqlens, **how)

        return call

    tensors = {"x": problem.tensors()["k_cmp_in"] * SMALLER, **_phi(kind, problem, **sizes)}
    with expect_route(compress="triton"):
        return judge(problem, tensors, of(ops.compress, backend="triton", strict=True), of(reference.compress))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("name", ["packed", pytest.param("batch", marks=SLOW)])
def test_each_map(name: str, kind: str, dtype: torch.dtype) -> None:
    _judge_map(kind, replace(CASES[name], dk=24, device=DEVICE, dtype=dtype))


ODD = NSAConfig(l=12, d=4, l_sel=16, n_sel=4, w=20)
SHAPES = {
    "three-spans-to-a-token": Problem(ODD, lengths=(41, 11, 12, 3, 16), kv_heads=2, dk=6),
    "spans-that-do-not-overlap": Problem(NSAConfig(l=4, d=4, l_sel=16, n_sel=4, w=20), tokens=30, batch=2, dk=20),
    "every-token-begins-one": Problem(NSAConfig(l=3, d=1, l_sel=16, n_sel=4, w=20), tokens=21, dk=2),
    "no-span": Problem(SMALL, tokens=7, dk=8),
    "no-token": Problem(SMALL, lengths=(0, 0), dk=8),
    "nothing-is-a-power-of-two": Problem(SMALL, tokens=21, batch=2, kv_heads=3, dk=80),
}


@pytest.mark.parametrize("kind", ["weighted", "mlp"])
@pytest.mark.parametrize("name", SHAPES)
def test_any_shape_of_spans(name: str, kind: str) -> None:
    _judge_map(kind, replace(SHAPES[name], device=DEVICE), **({"hidden": 7} if kind == "mlp" else {}))


@pytest.mark.parametrize("kind", ["weighted", "mlp"])
def test_a_branch_of_one_projection(kind: str) -> None:
    problem = replace(CASES["batch"], dk=16, device=DEVICE)
    wide, phi = torch.randn(2, 45, 3, 2, 16, device=DEVICE), MAPS[kind](**_phi(kind, problem))
    found, expected = (
        ops.compress(y[:, :, 1] if strided else y[:, :, 1].contiguous(), SMALL, phi=phi, backend="triton")
        for y, strided in ((wide, True), (wide, False))
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["weighted", "mlp"])
def test_sums_over_many_spans_are_taken_in_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the spans, whichever program is done first: the same bits each time."""
    monkeypatch.setattr(mlp, "EACH", 5)
    monkeypatch.setattr(weighted, "FEWEST_SPANS", 3)
    problem = replace(CASES["packed"], dk=16, device=DEVICE)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        found.append(_judge_map(kind, problem))
    first, again = found
    assert all(torch.equal(x, again[name]) for name, x in first.items())


def test_few_spans_are_left_to_pytorch_unless_asked_for() -> None:
    """Such as those of a step of decode."""
    shape = torch.device(DEVICE), torch.float32, 1
    for tokens, off in ((16 * 62 + 32, True), (16 * 63 + 32, False)):
        request = Request("compress", *shape, tokens, tokens, 4, 4, 64, 64, NSAConfig(), phi="mlp")
        active = flags.current()
        facts = active, policy.profile_for(request, active)
        assert (policy.POLICIES["triton"](request, *facts) is not None) is off
        assert policy.POLICIES["triton"](replace(request, phi="weighted"), *facts) is None
        chosen = policy.decide(request, "triton", flags.current())
        assert chosen is not None and chosen.backend == "triton"


def test_the_whole_gives_way_where_its_means_are_asked_of_another() -> None:
    problem = Problem(SMALL, tokens=12, device=DEVICE)
    call = problem.attention(nsa_attention, backend={"attention": "triton", "compress": "torch"})
    with routing.record() as routes, torch.no_grad():
        call(**problem.tensors())
    assert routes.backends("compress") == {f"torch@{device_name(torch.device(DEVICE))}"}
    assert {route.backend for route in routes.of("selected")} == {"triton"}


def test_a_map_of_another_dtype_is_refused() -> None:
    x = torch.zeros(1, 8, 1, 4)
    with pytest.raises(ValueError, match=r"phi.weight \(torch.float64, cpu\) must have the dtype"):
        ops.compress(x, SMALL, phi=WeightedPhi(torch.zeros(1, 8, dtype=torch.float64)))
    with pytest.raises(ValueError, match=r"phi.weight must have the shape \[Hkv=1,l=8\], got \[1, 9\]"):
        ops.compress(x, SMALL, phi=WeightedPhi(torch.zeros(1, 9)))


# --- loads ---


def test_mean_of_spans_longer_than_one_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mean, "LOADED", 256)  # of a few rows
    _judge_mean(replace(CASES["packed"], device=DEVICE))
    _judge_mean(replace(CASES["packed"], device=DEVICE), rope=10.0)
