"""The gradients in one kernel, of key ranges and of chosen blocks: on a GPU those of sm_90, on a CPU their twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
import triton
from torch import Tensor

from nsa import explain_routing, nsa_attention, ops, reference, routing
from nsa.config import NSAConfig
from nsa.kernels import attention
from nsa.kernels.common import hopper
from nsa.kernels.common.sizes import pad_group
from nsa.kernels.ranges import fused
from nsa.kernels.ranges.forward import KeyRanges
from nsa.kernels.selected import fused as fused_selected
from nsa.tests import fused_twin
from nsa.tests.kernel_cases import CHUNKS, DEVICE, SMALL, judge
from nsa.tests.testing import Problem

pytestmark = pytest.mark.triton

HALVES = (torch.float16, torch.bfloat16) if DEVICE == "cuda" else (torch.float16,)  # interpreted bf16 is no arithmetic
WIDE = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=37)

CASES = {
    "batch": Problem(WIDE, tokens=45, batch=2, kv_heads=2, group_size=4, dk=64, dv=64),
    "group-of-16": Problem(SMALL, tokens=53, kv_heads=2, group_size=16, dk=64, dv=128),
    "group-of-1": Problem(SMALL, tokens=97, kv_heads=3, dk=64, dv=64),
    "group-of-12": Problem(SMALL, tokens=19, kv_heads=2, group_size=12, dk=64, dv=64),
    "wide": Problem(SMALL, tokens=50, kv_heads=2, group_size=4, dk=128, dv=128),
    "wider-keys": Problem(SMALL, tokens=41, batch=2, group_size=4, dk=192, dv=128),
    "packed": Problem(SMALL, lengths=(0, 13, 1, 0, 39), kv_heads=2, group_size=2, dk=64, dv=64),
    "packed-after": Problem(SMALL, lengths=(3, 0, 18), before=(44, 9, 0), kv_heads=2, group_size=4, dk=64, dv=64),
    "packed-wide": Problem(SMALL, lengths=(21, 1, 40), group_size=4, dk=192, dv=64),
    "one-token": Problem(SMALL, tokens=1, group_size=4, dk=64, dv=64),
}
SELECTED = {
    "group-of-16": CASES["group-of-16"],
    "group-of-32": Problem(WIDE, tokens=23, batch=2, group_size=32, dk=128, dv=64),
    "packed-of-8": Problem(SMALL, lengths=(0, 13, 1, 0, 39), kv_heads=2, group_size=8, dk=64, dv=64),
    "odd-blocks": Problem(replace(SMALL, l_sel=24), tokens=70, kv_heads=2, group_size=5, dk=64, dv=64),
    "one-token": Problem(SMALL, tokens=1, group_size=8, dk=64, dv=64),
    "group-of-3": Problem(WIDE, tokens=61, batch=2, kv_heads=2, group_size=3, dk=64, dv=128),
    "packed-of-4": Problem(SMALL, lengths=(0, 13, 1, 0, 39), kv_heads=2, group_size=4, dk=128, dv=64),
    "wider-keys": Problem(SMALL, tokens=41, batch=2, group_size=8, dk=192, dv=128),
    "group-of-40": Problem(WIDE, tokens=7, batch=3, group_size=40, dk=64, dv=64),
}
if DEVICE == "cuda":  # several of its tiles
    SELECTED |= {
        "long": Problem(replace(WIDE, l_sel=64), tokens=1301, kv_heads=2, group_size=16, dk=128, dv=128),
        "long-blocks": Problem(replace(WIDE, l_sel=128), tokens=200, batch=2, group_size=8, dk=64, dv=128),
        "long-packed": Problem(replace(WIDE, l_sel=64), lengths=(300, 0, 45, 260), group_size=8, dk=128, dv=64),
        "long-of-4": Problem(replace(WIDE, l_sel=64), tokens=1301, kv_heads=3, group_size=4, dk=128, dv=128),
        "long-of-2": Problem(replace(WIDE, l_sel=64), tokens=801, batch=2, group_size=2, dk=64, dv=64),
        "long-wider-keys": Problem(replace(WIDE, l_sel=64), tokens=1301, kv_heads=2, group_size=16, dk=192, dv=128),
    }
    CASES |= {
        "long": Problem(SMALL, tokens=701, kv_heads=2, group_size=16, dk=128, dv=128),
        "long-wide": Problem(SMALL, tokens=530, batch=2, group_size=4, dk=192, dv=128),
        "long-packed": Problem(SMALL, lengths=(300, 0, 45, 260), kv_heads=2, group_size=4, dk=128, dv=64),
    }
BACKEND = {"backend": "triton", "strict": True}
LACKING = hopper.lacking


Run = fused.Run | fused_selected.Run


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Run, int]]]:
    """The launches of the kernels under test, each with its number of heads; without any a test fails. A CPU takes
    their twins, in small tiles.
    """
    if DEVICE == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip(f"sm_90 is needed, this is {torch.cuda.get_device_name()}")
    if DEVICE == "cuda" and hopper.lacking():
        pytest.skip(str(hopper.lacking()))
    launches: list[tuple[Run, int]] = []
    if DEVICE == "cpu":
        monkeypatch.setattr(hopper, "INTERPRETER", "sm_90")
        monkeypatch.setattr(fused, "lacking", lambda: None)
        monkeypatch.setattr(fused, "_tile", lambda q: fused.Tile(32, 16, 1, 2))
        monkeypatch.setattr(fused_selected, "TILES", dict.fromkeys(fused_selected.TILES, fused.Tile(64, 16, 1, 2)))
        hopper._name_of.cache_clear()
    for module, twin in ((fused, fused_twin.launch), (fused_selected, fused_twin.launch_selected)):
        launch = twin if DEVICE == "cpu" else module._launcher()
        monkeypatch.setattr(module, "_launcher", partial(_noting, launches, launch))
    yield launches
    hopper._name_of.cache_clear()


def _noting(launches: list[tuple[Run, int]], launch: Callable[..., None]) -> Callable[..., None]:
    def noting(run: Run, *others: object) -> None:
        launches.append((run, others[-1]))
        launch(run, *others)

    return noting


def problems(*names: str) -> list[object]:
    """The cases in each dtype; those of these names where an interpreter takes its time."""
    chosen = {name: CASES[name] for name in names} if names and DEVICE == "cpu" else CASES
    return [
        pytest.param(replace(problem, dtype=dtype, device=DEVICE), id=f"{name}-{str(dtype).removeprefix('torch.')}")
        for name, problem in chosen.items()
        for dtype in HALVES
    ]


def in_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the queries of each key tile into splits, and take one KV head after the other, though there are few."""

    def one_tile(q: Tensor, k: Tensor, where: KeyRanges, tile: fused.Tile, heads: int) -> int:
        return tile.BM // pad_group(q.shape[2] // k.shape[2])

    monkeypatch.setattr(fused, "_split", one_tile)
    monkeypatch.setattr(fused, "FEW_QUERIES", 0)
    monkeypatch.setattr(fused_selected, "pairs_of", lambda rows: 6)
    monkeypatch.setattr(fused_selected, "chunk_of", lambda queries, rows: 10)


# --- each branch ---


def _window(problem: Problem, window: int) -> None:
    found = problem.tensors()
    judge(
        problem,
        {"q": found["q"], "k": found["k_win"], "v": found["v_win"]},
        lambda q, k, v: ops.sliding_window_attention(q, k, v, window, **problem.where, **BACKEND),
        lambda q, k, v: reference.sliding_window_attention(q, k, v, window, **problem.where),
    )


def _compressed(problem: Problem) -> None:
    found = problem.tensors()
    k, v = (
        reference.compress(found[x], problem.config, cu_seqlens=problem.cu_seqlens_of_keys)
        for x in ("k_cmp_in", "v_cmp_in")
    )
    where = problem.where
    judge(
        problem,
        {"q": found["q"], "k": k, "v": v},
        lambda q, k, v: ops.compressed_attention(q, k, v, problem.config, **where, **BACKEND)[0],
        lambda q, k, v: reference.compressed_attention(q, k, v, problem.config, **where)[0],
    )


def _selected(problem: Problem) -> None:
    found = problem.tensors()
    where, indices = problem.where, problem.oracle_blocks(found)
    judge(
        problem,
        {"q": found["q"], "k": found["k_sel"], "v": found["v_sel"]},
        lambda q, k, v: ops.selected_attention(q, k, v, indices, problem.config, **where, **BACKEND),
        lambda q, k, v: reference.selected_attention(q, k, v, indices, problem.config, **where),
    )


@pytest.mark.parametrize("problem", problems())
def test_window_matches_the_oracle(problem: Problem, counted: list[tuple[Run, int]]) -> None:
    _window(problem, problem.config.w)
    assert counted


@pytest.mark.parametrize("problem", problems())
def test_compressed_matches_the_oracle(problem: Problem, counted: list[tuple[Run, int]]) -> None:
    _compressed(problem)
    assert counted or problem.total < problem.config.l


@pytest.mark.parametrize("few", [True, False], ids=["few-queries", "many-queries"])
@pytest.mark.parametrize("name", SELECTED)
def test_selected_matches_the_oracle(
    name: str, few: bool, counted: list[tuple[Run, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not few:
        in_splits(monkeypatch)
    problem = replace(SELECTED[name], dtype=HALVES[-1], device=DEVICE)
    _selected(problem)
    assert [heads for _, heads in counted] == ([problem.kv_heads] if few else [1] * problem.kv_heads)


@pytest.mark.parametrize("chosen", ["any", "none"])
def test_selected_of_any_blocks(chosen: str, counted: list[tuple[Run, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding between the blocks of a query, some or all queries without any, chunks of a prefill."""
    in_splits(monkeypatch)
    problem = replace(CASES["group-of-12"], batch=2, dtype=torch.float16, device=DEVICE)
    found, starts, generator = problem.tensors(), torch.tensor([0, 7]), torch.Generator().manual_seed(0)
    q, last = found["q"][:, :12], (starts[:, None] + torch.arange(12))[:, :, None, None] // problem.config.l_sel
    indices = torch.rand(2, 12, 2, 4, generator=generator).argsort(-1)  # distinct
    keep = (indices <= last) & (torch.rand(indices.shape, generator=generator) < 0.7) & (chosen == "any")
    indices, starts = torch.where(keep, indices, -1).int().to(DEVICE), starts.to(DEVICE)
    judge(
        problem,
        {"q": q, "k": found["k_sel"], "v": found["v_sel"]},
        lambda q, k, v: ops.selected_attention(q, k, v, indices, problem.config, q_start=starts, **BACKEND),
        lambda q, k, v: reference.selected_attention(q, k, v, indices, problem.config, q_start=starts),
    )
    assert [heads for _, heads in counted] == [1] * problem.kv_heads


@pytest.mark.parametrize("name", ["batch", "group-of-12", "packed", "wider-keys"])
def test_in_splits_of_the_queries_and_of_the_heads(
    name: str, counted: list[tuple[Run, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_splits(monkeypatch)
    problem = replace(CASES[name], dtype=torch.float16, device=DEVICE)
    _window(problem, problem.config.w)
    _compressed(problem)
    assert {heads for _, heads in counted} == {1}
    assert all(run.adds for run, _ in counted)


@pytest.mark.parametrize("window", [1, 16, 10**6])
def test_exactly_so_many_keys(window: int) -> None:
    _window(replace(CASES["batch"], dtype=torch.float16, device=DEVICE), window)


@pytest.mark.parametrize(
    "config", [NSAConfig(l=8, d=8, l_sel=16, n_sel=4, w=20), NSAConfig(l=1, d=1, l_sel=8, n_sel=4, w=20)]
)
def test_any_geometry(config: NSAConfig) -> None:
    _compressed(replace(CASES["batch"], config=config, dtype=torch.float16, device=DEVICE))


# --- the whole operation ---


def _whole(problem: Problem, tensors: dict[str, Tensor] | None = None, **where: object) -> None:
    found = problem.tensors() if tensors is None else tensors
    for name in ("v_cmp_in", "v_sel", "v_win"):  # the gates' gradients are sums over Dv: of the tolerances' size
        found[name] *= (16 / problem.dv) ** 0.5
    where = {"cu_seqlens": problem.cu_seqlens, **where}
    k_cmp = reference.compress(found["k_cmp_in"].double(), problem.config, cu_seqlens=where["cu_seqlens"])
    indices = reference.select_blocks(found["q"].double(), k_cmp, problem.config, **where)

    def call(function):  # type: ignore[no-untyped-def]
        def called(q, k_cmp_in, k_sel, k_win, v_cmp_in, v_sel, v_win, gates):  # type: ignore[no-untyped-def]
            fixed = {**where, "block_indices": indices, **(BACKEND if function is nsa_attention else {})}
            return function(q, (k_cmp_in, k_sel, k_win), (v_cmp_in, v_sel, v_win), gates, problem.config, **fixed)

        return called

    judge(problem, found, call(nsa_attention), call(reference.nsa_attention))


@pytest.mark.parametrize("few", [True, False], ids=["few-queries", "many-queries"])
@pytest.mark.parametrize("problem", problems("batch", "packed-wide", "group-of-16"))
def test_the_whole_matches_the_oracle(
    few: bool, problem: Problem, counted: list[tuple[Run, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not few:
        in_splits(monkeypatch)
        monkeypatch.setattr(attention, "HOST_BOUND", 0)
    _whole(problem)
    assert counted


def test_gates_of_any_sign() -> None:
    problem = replace(CASES["group-of-12"], dtype=torch.float16, device=DEVICE)
    found = problem.tensors()
    found["gates"] = torch.randn_like(found["gates"])
    found["gates"][:, 3:5] = 0
    _whole(problem, found)


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_of_a_prefill(name: str) -> None:
    tokens, starts = CHUNKS[name]
    problem = replace(CASES["batch"], dtype=torch.float16, device=DEVICE)
    found = problem.tensors()
    late = {name: found[name][:, :tokens].contiguous() for name in ("q", "gates")}
    _whole(problem, {**found, **late}, q_start=torch.tensor(starts, device=DEVICE))


@pytest.mark.slow
def test_any_layout(counted: list[tuple[Run, int]]) -> None:
    """What TMA cannot load is copied, not computed otherwise."""
    problem = replace(CASES["batch"], dtype=torch.float16, device=DEVICE)
    found = problem.tensors()
    turned = {name: found[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("q", "k_win", "v_win")}
    shifted = found["k_cmp_in"].new_empty(found["k_cmp_in"].numel() + 1)[1:].view_as(found["k_cmp_in"])
    _whole(problem, {**found, **turned, "k_cmp_in": shifted.copy_(found["k_cmp_in"])})
    assert counted


@pytest.mark.cuda
@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
def test_captured_in_a_cuda_graph() -> None:
    """After calls of its kind, replayed ones among them, the whole with its gradients can be captured."""
    problem = replace(CASES["wide"], tokens=700, dtype=torch.bfloat16, device=DEVICE)
    found = problem.tensors()
    leaves = [found[name].requires_grad_() for name in ("q", "k_sel", "v_sel", "gates")]
    upstream = torch.randn_like(leaves[0])

    def run() -> list[Tensor]:
        o = nsa_attention(*leaves, problem.config, **BACKEND)
        return [o.detach(), *torch.autograd.grad(o, leaves, upstream)]

    for _ in range(3):
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    with torch.no_grad():
        for x in leaves:
            x.copy_(x.roll(1, 1))
    graph.replay()
    for one, other in zip(captured, run(), strict=True):
        assert (one - other).norm() <= 1e-3 * other.norm()


@pytest.mark.cuda
@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
def test_two_streams_give_what_one_gives() -> None:
    """Recorded, the selected branch's gradient runs beside the others', whatever becomes of memory meanwhile."""
    problem = replace(CASES["wide"], tokens=2000, group_size=1, dtype=torch.bfloat16, device=DEVICE)
    found = problem.tensors()
    q, k, v, gates = (found[name].requires_grad_() for name in ("q", "k_sel", "v_sel", "gates"))
    own = [x.detach().clone().requires_grad_() for x in (k, v)]
    leaves = [own[0], own[1], q, k, v, gates]
    upstream = torch.randn_like(q)

    def run() -> tuple[Tensor, ...]:
        triples = [(x, y, x) for x, y in zip((k, v), own, strict=True)]
        return torch.autograd.grad(nsa_attention(q, *triples, gates, problem.config, **BACKEND), leaves, upstream)

    plain = run()
    for number in range(30):
        repeated = run()
        junk = [torch.full((number + 1, 1 << 20), float("nan"), device=DEVICE) for _ in range(4)]
        del junk
        assert all(torch.equal(x, y) for x, y in zip(repeated[:2], plain[:2], strict=True))
        for x, y in zip(repeated, plain, strict=True):
            assert (x - y).norm() <= 4e-3 * y.norm()


def test_no_queries_and_no_keys() -> None:
    q, k, v = (torch.zeros(1, 0, heads, 64, dtype=torch.float16, device=DEVICE) for heads in (4, 2, 2))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    o = ops.sliding_window_attention(*leaves, 5, **BACKEND)
    assert [x.shape for x in torch.autograd.grad(o.sum(), leaves)] == [x.shape for x in leaves]
    problem = replace(CASES["batch"], tokens=SMALL.l - 1, dtype=torch.float16, device=DEVICE)
    _compressed(problem)  # there is no compressed token yet


# --- where it runs ---


def test_asked_to_repeat_its_bits_it_stays_away(counted: list[tuple[Run, int]]) -> None:
    x = replace(CASES["batch"], dtype=torch.float16, device=DEVICE).tensors()
    q, k, v = (x[name].requires_grad_() for name in ("q", "k_win", "v_win"))
    for how in ({"deterministic": True}, {"globally": True}, {}):
        torch.use_deterministic_algorithms(how.pop("globally", False))
        try:
            with routing.record() as routes:
                o = ops.sliding_window_attention(q, k, v, 9, **how, **BACKEND)
            torch.autograd.grad(o.sum(), (q, k, v))
        finally:
            torch.use_deterministic_algorithms(False)
        said = routes[-1].gradient
        assert said == "one kernel for dq, dk and dv" if counted else "dq apart from dk and dv: deterministic" in said
    assert counted


def test_routing_explains_it() -> None:
    shape = {"tokens": 4096, "heads": 64, "kv_heads": 4, "device": DEVICE, "dtype": torch.float16, "backend": "triton"}
    ways = {
        (dk, grad): explain_routing(SMALL, **shape, dk=dk, needs_grad=grad) for dk, grad in ((64, 1), (96, 1), (64, 0))
    }
    said = {key: found.decisions["attention"].gradient for key, found in ways.items()}
    assert said[64, 1] == "one kernel for dq, dk and dv"
    assert said[96, 1].startswith("dq apart from dk and dv: head dimensions 96 and 96 are not among")
    assert said[64, 0] == ""
    assert ways[64, 1].decisions["selected"].gradient == "one kernel for dq, dk and dv"
    few = explain_routing(SMALL, **{**shape, "kv_heads": 64}, dk=64, needs_grad=True).decisions["attention"].gradient
    apart = "of the selected branch dq apart from dk and dv: the group size is 1, not 2 to 64"
    assert few == f"one kernel for dq, dk and dv; {apart}"
    assert f"gradient: {said[96, 1]}" in str(ways[96, 1])


def test_chunks_grow_with_the_root_of_the_queries() -> None:
    lengths = 1, 16384, 32768, 65536, 1 << 18, 1 << 20
    assert [fused_selected.chunk_of(queries, 16) for queries in lengths] == [1024, 1024, 2048, 2048, 4096, 8192]
    assert [fused_selected.chunk_of(65536, rows) for rows in (2, 8, 32)] == [16384, 4096, 1024]


@pytest.mark.parametrize(
    "change", [{"dk": 96}, {"group": 1}, {"group": 65}, {"deterministic": True}, {"dk": 192, "group": 4}]
)
def test_what_does_not_fit_the_selected_branch_has_a_reason(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "lacking", lambda: None)
    assert fused_selected.against(**FITTING) is None  # type: ignore[arg-type]
    *_, fact = change.values()
    assert str(fact) in (fused_selected.against(**{**FITTING, **change}) or "")  # type: ignore[arg-type]


FITTING = {"target": "sm_90", "dtype": torch.bfloat16, "dk": 128, "dv": 128, "group": 16, "deterministic": False}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"deterministic": True}, "deterministic=True"),
        ({"target": "a CPU"}, "written for sm_90, not a CPU"),
        ({"target": "sm_89"}, "written for sm_90, not sm_89"),
        ({"target": "sm_100"}, "written for sm_90, not sm_100"),
        ({"dtype": torch.float32}, "half precision, not float32"),
        ({"dk": 96}, "head dimensions 96 and 128"),
        ({"dv": 96}, "head dimensions 128 and 96"),
        ({"group": 65}, "65 query heads share a KV head, more than a tile's 64"),
        ({"dk": 192, "group": 33}, "33 query heads share a KV head, more than a tile's 32"),
    ],
)
def test_what_does_not_fit_has_a_reason(change: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "lacking", lambda: None)
    assert fused.against(**FITTING) is None  # type: ignore[arg-type]
    assert words in (fused.against(**{**FITTING, **change}) or "")  # type: ignore[arg-type]


def test_a_triton_that_cannot_compile_it_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(hopper, "VERSION", (3, 10))
    assert "Triton 3.6 to 3.9" in (LACKING.__wrapped__() or "")
    monkeypatch.setattr(hopper, "VERSION", (3, 7))
    assert LACKING.__wrapped__() is None
    monkeypatch.setattr(hopper, "import_module", absent)
    assert triton.__version__ in (LACKING.__wrapped__() or "")
