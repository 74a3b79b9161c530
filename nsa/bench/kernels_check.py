"""Is what the bench times right? The whole operation and its gradients against the oracle on sampled queries.

The upstream gradient is zero except at the sampled queries, so the oracle's gradients are exact. The bar is the error
of the oracle's own formula computed in the inputs' dtype, times two; the oracle itself computes in fp64. Both get the
blocks that the kernel chose; that choice is judged alone, by what the oracle's scores of its blocks lack to the best.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from nsa import reference
from nsa.bench.kernels_cases import Case
from nsa.bench.kernels_parts import Tensors
from nsa.ops import nsa_attention

ALLOWED = 2.0
FLOOR = 1e-5
REGRET = 1e-3
LEAVES = ("q", "k", "v", "gates")


@dataclass(frozen=True)
class Check:
    """Relative errors in the norm, ours and of the same formula in the inputs' dtype; and the selection's regret."""

    case: str
    rows: int
    errors: dict[str, float]
    plain: dict[str, float]
    regret: float
    forced: bool

    @property
    def passed(self) -> bool:
        """Every error within twice the plain one, forced blocks present, regret small. NaN never passes."""
        within = all(self.errors[name] <= ALLOWED * self.plain[name] + FLOOR for name in self.errors)
        return within and self.forced and self.regret <= REGRET

    def as_row(self) -> dict[str, object]:
        return {**asdict(self), "passed": self.passed}


def sampled_rows(tokens: int, count: int, seed: int) -> Tensor:
    """`count` distinct queries, the first and the last among them, ascending."""
    generator = torch.Generator().manual_seed(seed)
    inner = torch.randperm(max(0, tokens - 2), generator=generator)[: max(0, count - 2)] + 1
    return torch.cat([torch.tensor([0, tokens - 1]), inner]).unique()


def check(case: Case, x: Tensors, backend: str, count: int, seed: int = 0) -> Check:
    """Judge `nsa_attention` on x (from `kernels_parts.prepare`) at `count` queries."""
    rows = sampled_rows(case.tokens, count, seed).to(x["q"].device)
    do = x["do"][:, rows]

    def outcome(function, dtype: torch.dtype, upstream, **options) -> dict[str, Tensor]:  # type: ignore[no-untyped-def]
        leaves = [x[name].to(dtype).requires_grad_() for name in LEAVES]
        o = function(*leaves, case.config, **options)
        grads = torch.autograd.grad(o, leaves, upstream.to(o.dtype))
        at = o if "rows" in options else o[:, rows]
        return {"o": at.detach(), **{f"d{name}": g for name, g in zip(LEAVES, grads, strict=True)}}

    dtype, chosen = x["q"].dtype, {"block_indices": x["indices"], "rows": rows}
    sparse = torch.zeros_like(x["do"])
    sparse[:, rows] = do
    ours = outcome(nsa_attention, dtype, sparse, backend=backend, strict=True)
    plain = outcome(reference.nsa_attention, dtype, do, **chosen)
    exact = outcome(reference.nsa_attention, torch.float64, do, **chosen)
    regret, forced = selection_regret(case, x, rows)
    return Check(case.name, len(rows), _errors(ours, exact), _errors(plain, exact), regret, forced)


def _errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    return {name: float((found[name].double() - exact[name]).norm() / exact[name].norm()) for name in exact}


def selection_regret(case: Case, x: Tensors, rows: Tensor) -> tuple[float, bool]:
    """The worst relative lack of the chosen blocks' score, and whether the forced blocks are always there."""
    scores = reference.block_scores(x["q"].double(), x["k_cmp"].double(), case.config, rows=rows)[0]
    worst, forced = 0.0, True
    for t, heads in zip(rows.tolist(), scores, strict=True):
        for h, score in enumerate(heads):
            chosen = {int(j) for j in x["indices"][0, t, h] if j >= 0}
            best = reference.chosen_blocks(t, score.tolist(), case.config)
            most = float(score[best].sum())
            worst = max(worst, (most - float(score[sorted(chosen)].sum())) / max(most, 1e-30))
            forced = forced and reference.forced_blocks(t, case.config) <= chosen and len(chosen) == len(best)
    return worst, forced
