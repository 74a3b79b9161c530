"""How the benches judge: against the oracle in fp64, by the error of the oracle's own formula in the inputs' dtype.

The upstream gradient is zero except at sampled queries, so the oracle's gradients are exact though it computes only
those. Errors are relative, in the norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

ALLOWED = 2.0
"""An error may be so many times that of the same formula in plain PyTorch."""

FLOOR = 1e-5
"""And so much more, for fp32."""

REHEARSALS = 2
"""Calls on other tensors of the same kind before the judged one: calls that repeat may take a shorter way."""

REGRET = 1e-3
"""The most, relative, that the scores of chosen blocks may lack to the best."""

Outcome = dict[str, Tensor]


@dataclass(frozen=True)
class Operation:
    """One operation on tensors by name.

    Attributes:
        name: as in `nsa.ops`.
        leaves: the tensors that get gradients (none of them, if `gradients` is False).
        ours: from the leaves to the output [B,T,...], or to several outputs of which the first is differentiated.
        oracle: the same from the leaves in any dtype and the sampled rows of T, only for these rows.
    """

    name: str
    leaves: Mapping[str, Tensor]
    ours: Callable[..., Tensor | tuple[Tensor, ...]]
    oracle: Callable[..., Tensor | tuple[Tensor, ...]]
    gradients: bool = True


@dataclass(frozen=True)
class Judgement:
    """Errors of the outputs and gradients, ours and plain PyTorch's, and what must hold exactly.

    Attributes:
        errors, plain: by name; `o`, other outputs as `o1`..., and `d<leaf>`.
        finite: no NaN and no infinity in any output or gradient, sampled or not (-inf in a lse is right).
        zeros: rows of `o` that the oracle leaves exactly 0 are exactly 0.
    """

    errors: dict[str, float]
    plain: dict[str, float]
    finite: bool
    zeros: bool

    @property
    def worst(self) -> str:
        """The name with the largest part of what it may have."""
        return max(self.errors, key=lambda name: self.errors[name] / allowance(self.plain[name]))

    @property
    def passed(self) -> bool:
        within = (error <= allowance(self.plain[name]) for name, error in self.errors.items())  # NaN never is
        return self.finite and self.zeros and all(within)


def allowance(plain: float) -> float:
    """The largest error that passes beside plain PyTorch's."""
    return ALLOWED * plain + FLOOR


def sampled_rows(tokens: int, count: int, seed: int) -> Tensor:
    """`count` distinct queries, the first and the last among them, ascending."""
    generator = torch.Generator().manual_seed(seed)
    inner = torch.randperm(max(0, tokens - 2), generator=generator)[: max(0, count - 2)] + 1
    return torch.cat([torch.tensor([0, tokens - 1]), inner]).unique()


def relative_error(found: Tensor, exact: Tensor) -> float:
    """Norm of the difference over that of `exact`; infinite where -inf is not in the same places.

    Where everything exact is 0 (the gradient of a softmax over one key), the root mean square of what was found.
    """
    found, exact = found.double(), exact.double()
    hidden = exact.isneginf()
    if hidden.any() or found.isneginf().any():
        if not torch.equal(found.isneginf(), hidden):
            return math.inf
        found, exact = found[~hidden], exact[~hidden]
    lack, size = float((found - exact).norm()), float(exact.norm())
    return lack / (size or max(1, exact.numel()) ** 0.5)


def judge(operation: Operation, rows: Tensor, seed: int = 0, rehearsals: int = REHEARSALS) -> Judgement:
    """Judge an operation at `rows` under a random upstream gradient."""
    exact = _outcome(operation, torch.float64, rows, seed)
    dtype = next(iter(operation.leaves.values())).dtype
    plain = _outcome(operation, dtype, rows, seed)
    for rehearsal in range(rehearsals):
        leaves = {name: x.flip(1) for name, x in operation.leaves.items()}
        _called(replace(operation, leaves=leaves), rows, seed + 1 + rehearsal)
    ours, finite = _called(operation, rows, seed)
    empty = (exact["o"] == 0).all(-1)
    errors, of_plain = ({name: relative_error(x, exact[name]) for name, x in found.items()} for found in (ours, plain))
    return Judgement(errors, of_plain, finite, zeros=not bool(ours["o"][empty].count_nonzero()))


def _outcome(operation: Operation, dtype: torch.dtype, rows: Tensor, seed: int) -> Outcome:
    """The oracle's outputs at the rows, and gradients, computed in `dtype`."""
    leaves = _leaves(operation, dtype)
    return _collect(operation, leaves, _several(operation.oracle(rows=rows, **leaves)), seed)


def _called(operation: Operation, rows: Tensor, seed: int) -> tuple[Outcome, bool]:
    """Our outputs at the rows, and gradients; and whether these and the whole outputs are finite."""
    leaves = _leaves(operation, None)
    outputs = _several(operation.ours(**leaves))
    found = _collect(operation, leaves, tuple(x[:, rows] for x in outputs), seed)
    whole = (*outputs, *(x for name, x in found.items() if name.startswith("d")))
    return found, not any(bool((x.isnan() | x.isposinf()).any()) for x in whole)


def _leaves(operation: Operation, dtype: torch.dtype | None) -> dict[str, Tensor]:
    made = {name: x.detach().to(dtype or x.dtype, copy=True) for name, x in operation.leaves.items()}
    return {name: x.requires_grad_(operation.gradients) for name, x in made.items()}


def _several(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _collect(operation: Operation, leaves: dict[str, Tensor], sampled: tuple[Tensor, ...], seed: int) -> Outcome:
    """Outputs at the sampled rows, and the gradients under one of the first that is random there and 0 elsewhere."""
    o, found = sampled[0], {f"o{i or ''}": x.detach() for i, x in enumerate(sampled)}
    if operation.gradients:
        dtype = next(iter(operation.leaves.values())).dtype  # to which it is rounded, so that all see the same
        generator = torch.Generator(o.device).manual_seed(seed)
        upstream = torch.randn(o.shape, generator=generator, device=o.device).to(dtype).to(o.dtype)
        grads = gradients(o, list(leaves.values()), upstream)
        found |= {f"d{name}": grad for name, grad in zip(leaves, grads, strict=True)}
    return found


def gradients(o: Tensor, leaves: Sequence[Tensor], upstream: Tensor) -> list[Tensor]:
    """The gradient of each leaf under `upstream`, the gradient of o: zeros where nothing flows.

    Of a sum: for an upstream gradient that it is given PyTorch imports sympy, which takes longer than PyTorch itself.
    """
    found = torch.autograd.grad((o * upstream).sum(), leaves, allow_unused=True)
    return [torch.zeros_like(x) if grad is None else grad for x, grad in zip(leaves, found, strict=True)]
