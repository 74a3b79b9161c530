"""Two runs that are kept: what differs between them. Which is faster they cannot tell: one session has to time both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.figures.model import Clocks, Context, Figure, Figures, Identity

_CLOCKS_APART = 0.03
_FACTS = (
    ("pod", "pod"),
    ("machine", "hostname"),
    ("boot", "boot_id"),
    ("GPU", "gpus"),
    ("GPU id", "gpu_ids"),
    ("CPU", "cpu"),
    ("driver", "driver"),
    ("Python", "python"),
    ("CUDA runtime", "torch_cuda"),
    ("bench files", "harness"),
    ("runbook", "runbook"),
)
# Another commit has them as a matter of course; another session of one machine too.
_NOT_THE_MACHINE = ("bench files", "runbook", "boot")


@dataclass(frozen=True)
class KeptRow:
    """A figure of both, or of one of them."""

    identity: Identity
    a: Figure | None
    b: Figure | None

    @property
    def unit(self) -> str:
        return next((figure.unit for figure in (self.a, self.b) if figure), "")

    @property
    def ratio(self) -> float | None:
        """B over A; None where one has not measured it, or measured nothing."""
        return self.b.median / self.a.median if self.a and self.b and self.a.median else None


@dataclass(frozen=True)
class Kept:
    """`differences` are clauses; those of `why_not` keep the figures from being compared at all."""

    a: Context
    b: Context
    differences: list[str]
    why_not: list[str]
    rows: list[KeptRow]


def differing(a: Figures, b: Figures) -> Kept:
    """What differs between two runs, and the figures of both that passed."""
    told = dict(_differences(a.context, b.context))
    names = {figure.identity: None for found in (a, b) for figure in found.figures if found.passed(figure)}
    rows = [KeptRow(name, _passed(a, name), _passed(b, name)) for name in names]
    return Kept(
        a.context,
        b.context,
        [*told.values(), *_statuses(a.context, b.context)],
        [clause for what, clause in told.items() if what not in _NOT_THE_MACHINE],
        rows,
    )


def _passed(found: Figures, name: Identity) -> Figure | None:
    figure = found.by_identity.get(name)
    return figure if figure and found.passed(figure) else None


def _differences(a: Context, b: Context) -> Iterator[tuple[str, str]]:
    for what, name in _FACTS:
        one, other = getattr(a, name), getattr(b, name)
        if one != other:
            yield what, f"{what}: {_shown(one)} and {_shown(other)}"
    for name in sorted(a.packages.keys() | b.packages.keys()):
        one, other = a.packages.get(name), b.packages.get(name)
        if one != other:
            yield f"package {name}", f"{name}: {_shown(one)} and {_shown(other)}"
    yield from _clocks(a.clocks, b.clocks)


def _statuses(a: Context, b: Context) -> Iterator[str]:
    """Of stages of both: figures of one that did not pass are not shown."""
    for stage, one in a.statuses.items():
        other = b.statuses.get(stage, one)
        if one != other:
            yield f"{stage}: {one} and {other}"


def _clocks(a: Mapping[str, Clocks], b: Mapping[str, Clocks]) -> Iterator[tuple[str, str]]:
    for stage in a.keys() & b.keys():
        slow, fast = sorted((a[stage].median, b[stage].median))
        if fast > slow * (1 + _CLOCKS_APART):
            shown = f"{a[stage].median:.0f} and {b[stage].median:.0f} MHz"
            yield f"clocks of {stage}", f"clocks in {stage}: {shown}"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
