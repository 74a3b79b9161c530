"""The whole operation through the Triton backend: routed, output and all gradients against the oracle."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from nsa import flags, nsa_attention, ops, reference, routing
from nsa.kernels import attention, backend
from nsa.routing import Request
from nsa.tests.kernel_cases import BRANCHES, CASES, CHUNKS, DEVICE, SLOW, SMALL, chunk, judge, problems
from nsa.tests.testing import Problem, expect_route

pytestmark = pytest.mark.triton


def _call(problem: Problem, function, **fixed):  # type: ignore[no-untyped-def]
    """`function` with the branches' keys and values as triples."""

    def call(q, k_cmp_in, k_sel, k_win, v_cmp_in, v_sel, v_win, gates):  # type: ignore[no-untyped-def]
        keys, values = (k_cmp_in, k_sel, k_win), (v_cmp_in, v_sel, v_win)
        return function(q, keys, values, gates, problem.config, **problem.where, **fixed)

    return call


@pytest.mark.parametrize("problem", problems())
def test_matches_the_oracle(problem: Problem) -> None:
    indices = problem.oracle_blocks(problem.tensors())
    with expect_route(**dict.fromkeys(BRANCHES, "triton")):
        judge(
            problem,
            problem.tensors(),
            _call(problem, nsa_attention, block_indices=indices, backend="triton"),
            _call(problem, reference.nsa_attention, block_indices=indices),
        )


def test_with_many_queries_the_window_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "HOST_BOUND", 0)
    problem = replace(CASES["batch"], device=DEVICE)
    indices = problem.oracle_blocks(problem.tensors())
    judge(
        problem,
        problem.tensors(),
        _call(problem, nsa_attention, block_indices=indices, backend="triton"),
        _call(problem, reference.nsa_attention, block_indices=indices),
    )


def test_its_scale_is_an_argument() -> None:
    problem = replace(CASES["batch"], device=DEVICE)
    given = {"block_indices": problem.oracle_blocks(problem.tensors()), "scale": 0.4}
    judge(
        problem,
        problem.tensors(),
        _call(problem, nsa_attention, backend="triton", **given),
        _call(problem, reference.nsa_attention, **given),
    )


def test_it_chooses_with_its_scale_too() -> None:
    problem = replace(CASES["batch"], tokens=120, device=DEVICE)
    x = problem.tensors()
    found, same = (
        _call(problem, nsa_attention, backend="triton", scale=scale)(**{**x, "q": q})
        for q, scale in ((x["q"], 0.5), (4 * x["q"], 0.125))
    )
    assert torch.equal(found, same)


ROTATED = {
    "packed": Problem(SMALL, lengths=(13, 0, 11), group_size=3, dk=24, dv=16),
    "192": Problem(SMALL, tokens=21, kv_heads=2, group_size=3, dk=192, dv=16),
    "batch": replace(CASES["batch"], dk=48),
}


@pytest.mark.parametrize("name", ["packed", *(pytest.param(name, marks=SLOW) for name in ("192", "batch"))])
def test_turns_the_means_of_keys(name: str) -> None:
    problem = replace(ROTATED[name], device=DEVICE)
    fixed = {"block_indices": problem.oracle_blocks(problem.tensors()), "compressed_rope": 100.0}
    with expect_route(**dict.fromkeys(BRANCHES, "triton")):
        judge(
            problem,
            problem.tensors(),
            _call(problem, nsa_attention, **fixed, backend="triton", strict=True),
            _call(problem, reference.nsa_attention, **fixed),
        )


@pytest.mark.parametrize("backend_", ["torch", "triton"])
def test_turned_means_of_keys_that_all_branches_share(backend_: str) -> None:
    """With the blocks that the turned means choose; by the operations one after another too."""
    problem = Problem(SMALL, tokens=21, group_size=2, device=DEVICE)
    x = problem.tensors()

    def call(function, **how):  # type: ignore[no-untyped-def]
        return lambda q, k, v, gates: function(q, k, v, gates, SMALL, compressed_rope=10.0, **how)

    judge(
        problem,
        {"q": x["q"], "k": x["k_sel"], "v": x["v_sel"], "gates": x["gates"]},
        call(nsa_attention, backend=backend_),
        call(reference.nsa_attention),
    )


def test_rotation_of_what_is_given_is_refused() -> None:
    x = replace(CASES["one-head"], device=DEVICE).tensors()
    keys = x["k_sel"], x["v_sel"]
    call = partial(nsa_attention, x["q"], *keys, x["gates"], SMALL)
    with pytest.raises(ValueError, match="compressed_rope is of the means"):
        call(compressed=(keys[0][:, :16], keys[1][:, :16]), compressed_rope=1e4)
    with pytest.raises(ValueError, match="a positive number, got -1"):
        call(compressed_rope=-1.0)


@pytest.mark.parametrize(("name", "rope"), [*zip(CHUNKS, (None, 1e4, None), strict=True)])
def test_chunks_of_a_prefill(name: str, rope: float | None) -> None:
    found, q_start = chunk(name)
    k_cmp = reference.compress(found["k_cmp_in"].double(), SMALL)
    indices = reference.select_blocks(found["q"].double(), k_cmp, SMALL, q_start=q_start)
    where = {"q_start": q_start, "block_indices": indices, "compressed_rope": rope}
    with expect_route(**dict.fromkeys(BRANCHES, "triton")):
        judge(
            CASES["batch"],
            found,
            _call(CASES["batch"], nsa_attention, **where, backend="triton", strict=True),
            _call(CASES["batch"], reference.nsa_attention, **where),
        )


def test_selects_its_own_blocks() -> None:
    problem = replace(CASES["packed"], device=DEVICE)
    judge(
        problem,
        problem.tensors(),
        _call(problem, nsa_attention, backend="triton", strict=True),
        _call(problem, reference.nsa_attention),
    )


def test_gates_of_any_sign_shared_keys_and_given_compressed_tokens() -> None:
    problem = replace(CASES["batch"], device=DEVICE)
    found = problem.tensors()
    found["gates"] = torch.randn_like(found["gates"])
    found["gates"][:, 3:5] = 0
    k_cmp, v_cmp = (reference.compress(found[name], SMALL) for name in ("k_cmp_in", "v_cmp_in"))
    tensors = {"q": found["q"], "k": found["k_sel"], "v": found["v_sel"], "gates": found["gates"]}
    tensors |= {"k_cmp": k_cmp, "v_cmp": v_cmp}
    judge(
        problem,
        tensors,
        lambda q, k, v, gates, k_cmp, v_cmp: nsa_attention(
            q, k, v, gates, SMALL, compressed=(k_cmp, v_cmp), backend="triton"
        ),
        lambda q, k, v, gates, k_cmp, v_cmp: reference.nsa_attention(q, k, v, gates, SMALL, compressed=(k_cmp, v_cmp)),
    )


def test_each_operation_is_routed_here() -> None:
    problem = replace(CASES["batch"], device=DEVICE)
    x = problem.tensors()
    with expect_route(**dict.fromkeys(BRANCHES, "triton")):
        k_cmp, v_cmp = (ops.compress(x[name], SMALL) for name in ("k_cmp_in", "v_cmp_in"))
        o_cmp, lse = ops.compressed_attention(x["q"], k_cmp, v_cmp, SMALL, backend="triton")
        chosen = ops.select_blocks(x["q"], k_cmp, SMALL, lse=lse, backend="triton")
        o_sel = ops.selected_attention(x["q"], x["k_sel"], x["v_sel"], chosen, SMALL, backend="triton")
        o_win = ops.sliding_window_attention(x["q"], x["k_win"], x["v_win"], SMALL.w, backend="triton")
        ops.gated_combine(o_cmp, o_sel, o_win, x["gates"], backend="triton")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dk": 320}, "not both within 256"),
        ({"heads": 256, "kv_heads": 2}, "more than a tile's"),
        ({"dtype": torch.float64}, "cannot compute in float64"),
    ],
)
def test_refuses_with_a_reason(change: dict[str, object], words: str) -> None:
    shape = (1, 64, 64, 16, 4, 64, 64)
    request = Request("window", torch.device(DEVICE), torch.float16, *shape, SMALL)
    assert backend.supports(request) is None
    assert words in (backend.supports(replace(request, **change)) or "")


@pytest.mark.parametrize(
    ("version", "capability", "needs_grad", "words"),
    [
        ((2, 3), (8, 9), False, "older than 3.0"),
        ((3, 0), (9, 0), True, "gradient of selected attention on SM 9.0 or higher needs Triton 3.3"),
        ((3, 0), (9, 0), False, None),
        ((3, 0), (8, 9), True, None),
        ((3, 3), (9, 0), True, None),
    ],
)
def test_old_triton_is_a_reason(
    version: tuple[int, int],
    capability: tuple[int, int],
    needs_grad: bool,
    words: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "VERSION", version)
    monkeypatch.setattr(Request, "capability", capability)
    shape = (1, 64, 64, 16, 4, 64, 64)
    request = Request("selected", torch.device(DEVICE), torch.float16, *shape, SMALL, needs_grad=needs_grad)
    reason = backend.supports(request)
    assert reason is None if words is None else words in (reason or "")


def test_what_it_cannot_do_is_a_recorded_fallback() -> None:
    problem = Problem(SMALL, tokens=20, dtype=torch.float64, device=DEVICE)
    x = problem.tensors()
    with flags.using(backend="triton"), routing.record() as routes:
        ops.sliding_window_attention(x["q"], x["k_win"], x["v_win"], 4)
    assert [(route.backend, route.fallback) for route in routes] == [("torch", True)]
