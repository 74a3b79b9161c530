"""Whatever its shape, layout, dtype and packing, a call on the kernels equals the oracle, with all its gradients.

On a GPU hundreds of examples, of a few kinds, because each kind's kernels are compiled; on a CPU a few, interpreted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor

from nsa import NSACache, NSAConfig, nsa_attention, nsa_decode, reference
from nsa.bench.judge import REHEARSALS, Operation, allowance, judge, sampled_rows
from nsa.tests.kernel_cases import DEVICE, SLOW
from nsa.tests.strategies import CONFIGS, edge_lengths
from nsa.tests.testing import Problem, assert_close, expect_route

pytestmark = pytest.mark.triton

ON_TRITON = {"backend": "triton", "strict": True}
BRANCHES = {"compressed": "triton", "selected": "triton", "window": "triton"}

if DEVICE == "cuda":
    KINDS = {
        "paper": Problem(NSAConfig(), kv_heads=2, group_size=16, dk=128, dv=128, dtype=torch.bfloat16),
        "small-groups": Problem(NSAConfig(), kv_heads=4, group_size=4, dk=64, dv=64, dtype=torch.bfloat16),
        "wide": Problem(NSAConfig(), kv_heads=1, group_size=16, dk=192, dv=128, dtype=torch.bfloat16),
        "all-heads": Problem(CONFIGS[0], kv_heads=1, group_size=64, dk=64, dv=64, dtype=torch.bfloat16),
        "fp16": Problem(CONFIGS[3], kv_heads=2, group_size=6, dk=80, dv=96, dtype=torch.float16),
        "fp32": Problem(CONFIGS[4], kv_heads=3, group_size=2, dk=16, dv=40, dtype=torch.float32),
    }
    EXAMPLES, STEPS, LONGEST, MOST = 28, 10, 150, 3
    SLICED = (((False, False), (True, True)), ((False, True), (True, False)))
else:
    KINDS = {
        "fp32": Problem(CONFIGS[0], kv_heads=1, group_size=3, dk=16, dv=24, dtype=torch.float32),
        "fp16": Problem(CONFIGS[3], kv_heads=2, group_size=2, dk=24, dv=16, dtype=torch.float16),
    }
    EXAMPLES, STEPS, LONGEST, MOST = 3, 3, 40, 2
    SLICED = ((None,),)
ROWS = 16
"""Queries of an example that are judged: the oracle takes milliseconds for each."""

BEFORE = REHEARSALS if DEVICE == "cuda" else 0
"""Calls before the one that is judged: nothing interpreted is replayed."""

RUNS = [(kind, sliced) for kind, both in zip(KINDS, cycle(SLICED), strict=False) for sliced in both]
"""Each a test, for a process of its own: kind, and whether q, and k and v, are `_of_one_projection`, for which other
kernels are compiled; None is either.
"""

PROPERTY = settings(
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


# --- layouts ---


def _plain(x: Tensor) -> Tensor:
    return x.contiguous()


def _heads_first(x: Tensor) -> Tensor:
    """As a layer has it that projects to [B,H,T,D]."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _tokens_first(x: Tensor) -> Tensor:
    """As a layer has it whose batch is the second axis."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def _of_one_projection(x: Tensor) -> Tensor:
    """A slice of what other heads share: rows that begin anywhere, at an address that is a multiple of nothing."""
    return torch.cat([x.new_zeros(*x.shape[:3], 1), x, x.new_zeros(*x.shape[:3], 6)], dim=3)[..., 1:-6]


def _every_other(x: Tensor) -> Tensor:
    """Every other token of a longer one."""
    return x.repeat_interleave(2, dim=1)[:, ::2]


ALIGNED = (_plain, _heads_first, _tokens_first, _every_other)
ANY = (*ALIGNED, _of_one_projection)


@dataclass(frozen=True)
class Case:
    """A problem, how its tensors lie in memory (by the kind of tensor), and what of the call is chosen."""

    problem: Problem
    q: Callable[[Tensor], Tensor]
    k: Callable[[Tensor], Tensor]
    v: Callable[[Tensor], Tensor]
    shared: bool
    deterministic: bool
    rope: float | None

    def laid_out(self, name: str, x: Tensor) -> Tensor:
        """x as this case has it."""
        return x if name == "gates" else getattr(self, name[0])(x)


@st.composite
def cases(draw: st.DrawFn, kind: str, sliced: tuple[bool, bool] | None) -> Case:
    """Any length from 1 on, alone, in a batch or in a pack with empty and one-token sequences."""
    base = replace(KINDS[kind], device=DEVICE, seed=draw(st.integers(0, 99)))
    length = st.one_of(st.sampled_from(edge_lengths(base.config)[1:]), st.integers(2, LONGEST))
    if draw(st.booleans()):
        others = draw(st.lists(st.one_of(st.just(0), length), max_size=MOST - 1))
        lengths = tuple(draw(st.permutations([draw(length), *others])))
        before = tuple(draw(st.sampled_from((0, 0, 3, 41))) for _ in lengths) if draw(st.booleans()) else None
        problem = replace(base, lengths=lengths, before=before)
    else:
        problem = replace(base, tokens=draw(length), batch=draw(st.integers(1, MOST)))
    queries, keys = (ANY, ANY) if sliced is None else ((_of_one_projection,) if x else ALIGNED for x in sliced)
    q, k, v = (draw(st.sampled_from(layouts)) for layouts in (queries, keys, keys))
    return Case(problem, q, k, v, draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from((None, 1e4))))


def _attention(case: Case, function: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    """`function` of the case's tensors; with shared keys and values, those of the selected branch for all."""
    call = case.problem.attention(function, **options)

    def shared(q: Tensor, k_sel: Tensor, v_sel: Tensor, gates: Tensor) -> Tensor:
        return function(q, k_sel, v_sel, gates, case.problem.config, **case.problem.where, **options)

    return shared if case.shared else call


def _parity(case: Case) -> None:
    """Errors at some queries are at most `judge.ALLOWED` times those of the formula in the dtype, and one rounding."""
    problem = case.problem
    tensors = problem.tensors()
    if case.shared:
        tensors = {name: tensors[name] for name in ("q", "k_sel", "v_sel", "gates")}
    blocks = problem.oracle_blocks({"q": tensors["q"], "k_cmp_in": tensors["k_sel" if case.shared else "k_cmp_in"]})
    ours = _attention(
        case,
        nsa_attention,
        block_indices=blocks.int(),
        deterministic=case.deterministic,
        compressed_rope=case.rope,
        **ON_TRITON,
    )

    def laid_out(**given: Tensor) -> Tensor:
        return ours(**{name: case.laid_out(name, x) for name, x in given.items()})

    def oracle(rows: Tensor, **given: Tensor) -> Tensor:
        return _attention(case, reference.nsa_attention, block_indices=blocks, compressed_rope=case.rope, rows=rows)(
            **given
        )

    width = tensors["q"].shape[1]
    rows = sampled_rows(width, ROWS, problem.seed) if width else torch.arange(0)
    with expect_route(**(BRANCHES if problem.total else {})):
        found = judge(Operation("attention", tensors, laid_out, oracle), rows, problem.seed, BEFORE)
    assert found.finite and found.zeros
    rounding = torch.finfo(problem.dtype).eps
    for name, error in found.errors.items():
        assert error <= allowance(found.plain[name]) + rounding, f"{name}: {error:.1e}, formula {found.plain[name]:.1e}"


@pytest.mark.parametrize("lengths", [None, (0, 0)], ids=["dense", "packed"])
def test_without_tokens(lengths: tuple[int, ...] | None) -> None:
    problem = replace(KINDS["fp32"], device=DEVICE, tokens=0, lengths=lengths)
    _parity(Case(problem, _plain, _plain, _plain, shared=False, deterministic=False, rope=None))


@pytest.mark.parametrize(("kind", "sliced"), [RUNS[0], *(pytest.param(*run, marks=SLOW) for run in RUNS[1:])], ids=str)
def test_attention_equals_the_oracle(kind: str, sliced: tuple[bool, bool] | None) -> None:
    seen: list[Case] = []

    @seed(0)  # the same examples in every run: what passes is evidence
    @settings(PROPERTY, max_examples=EXAMPLES)
    @given(cases(kind, sliced))
    def check(case: Case) -> None:
        seen.append(case)
        _parity(case)

    check()
    assert len(seen) >= EXAMPLES, "some examples were left out"


# --- decode ---


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[list[int]], int | None, int]:
    """For each chunk how many tokens each of two sequences takes, the size of pages, and a seed."""
    count = st.integers(0, LONGEST // 10)
    begin = [draw(st.integers(0, LONGEST // 2)) for _ in range(2)]
    chunks = draw(st.lists(st.one_of(st.just([1, 1]), st.lists(count, min_size=2, max_size=2)), min_size=1, max_size=4))
    return [begin, *chunks, [1, 1]], draw(st.sampled_from((None, 1, 2))), draw(st.integers(0, 99))


def _decode(counts: list[list[int]], pages: int | None, number: int) -> None:
    lengths = [sum(taken) for taken in zip(*counts, strict=True)]
    problem = replace(KINDS["fp32"], device=DEVICE, seed=number, batch=2, tokens=max(lengths))
    x, config = problem.tensors(), problem.config
    expected = problem.attention(reference.nsa_attention)(**{name: value.double() for name, value in x.items()})
    size = None if pages is None else pages * config.l_sel * config.d
    where = {"dtype": problem.dtype, "device": DEVICE, "capacity": 16, "page_size": size}
    cache, at = NSACache(config, 2, problem.kv_heads, problem.dk, problem.dv, **where), [0, 0]
    for taken in counts:
        width = max(taken)
        rows = (torch.tensor(at)[:, None] + torch.arange(width)).clamp(max=max(lengths) - 1)  # padding is any row
        entry = torch.arange(2)[:, None]
        piece = {name: value[entry, rows] for name, value in x.items()}
        keys, values = ([piece[f"{kind}_{branch}"] for branch in ("cmp_in", "sel", "win")] for kind in "kv")
        o = nsa_decode(piece["q"], tuple(keys), tuple(values), piece["gates"], cache, counts=taken, **ON_TRITON)
        for b, count in enumerate(taken):
            assert_close(o[b, :count], expected[b, at[b] : at[b] + count], problem.dtype, f"from {at[b]}")
        at = [start + count for start, count in zip(at, taken, strict=True)]
    assert cache.lengths.tolist() == at == lengths


@pytest.mark.parametrize("part", [pytest.param(part, marks=SLOW) for part in range(2)])
def test_any_steps_equal_one_attention(part: int) -> None:
    """In fp32: rounded means would choose other blocks than the oracle's."""

    @seed(part)
    @settings(PROPERTY, max_examples=STEPS)
    @given(steps())
    def check(taken: tuple[list[list[int]], int | None, int]) -> None:
        _decode(*taken)

    check()
