"""Is what the bench times right? The whole operation and its gradients against the oracle on sampled queries.

The upstream gradient is zero except at the sampled queries, so the oracle's gradients are exact. The bar is the error
of the oracle's own formula computed in the inputs' dtype, times two; the oracle itself computes in fp64. Both get the
blocks that the kernel chose; that choice is judged alone, by what the oracle's scores of its blocks lack to the best.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsa import reference
from nsa.bench.judge import REGRET, Operation, judge, sampled_rows
from nsa.bench.kernels_cases import Case
from nsa.bench.kernels_parts import Tensors
from nsa.ops import nsa_attention

LEAVES = ("q", "k", "v", "gates")


@dataclass(frozen=True)
class Check:
    """Relative errors in the norm, ours and of the same formula in the inputs' dtype; and the selection's regret."""

    case: str
    rows: int
    errors: dict[str, float]
    plain: dict[str, float]
    regret: float
    passed: bool


def check(case: Case, x: Tensors, backend: str, count: int, seed: int = 0) -> Check:
    """Judge `nsa_attention` on x (from `kernels_parts.prepare`) at `count` queries."""
    rows = sampled_rows(case.tokens, count, seed).to(x["q"].device)
    operation = Operation(
        "attention",
        {name: x[name] for name in LEAVES},
        lambda **t: nsa_attention(**t, config=case.config, backend=backend, strict=True),
        lambda **t: reference.nsa_attention(**t, config=case.config, block_indices=x["indices"]),
    )
    found = judge(operation, rows, seed)
    scores = reference.block_scores(x["q"].double(), x["k_cmp"].double(), case.config, rows=rows)
    regret = reference.selection_regret(x["indices"][:, rows], scores, rows[None], case.config)
    return Check(case.name, len(rows), found.errors, found.plain, regret, found.passed and regret <= REGRET)
