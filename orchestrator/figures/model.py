"""Every number of a run, once: what it is of, in which unit, all its samples, and where it was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from orchestrator.verdict.artifacts.reading import Better
from orchestrator.verdict.status import Status

_PACKAGES = ("torch", "triton", "flash-attn")
Row = tuple[tuple[str, str], ...]
"""The key columns of a row with their values."""


class Identity(NamedTuple):
    """What makes a figure the same in another run. `artifact` is named as in the runbook, `{commit7}` and all."""

    stage: str
    artifact: str
    row: Row
    column: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.label}"

    @property
    def label(self) -> str:
        """Row and column in words: `S=512 branch=sel ms`."""
        return " ".join([*(f"{name}={value}" for name, value in self.row), self.column])


@dataclass(frozen=True)
class Figure:
    """One row in one column; `flags` say what to think of it (docs/figures.md)."""

    identity: Identity
    unit: str
    better: Better
    samples: tuple[float, ...]
    flags: tuple[str, ...] = ()

    @cached_property
    def median(self) -> float:
        return statistics.median(self.samples)

    @cached_property
    def middle(self) -> tuple[float, float]:
        """The 20th and the 80th percentile of the samples."""
        ordered = sorted(self.samples)
        last = len(ordered) - 1
        return ordered[round(last * 0.2)], ordered[round(last * 0.8)]


class Clocks(NamedTuple):
    """Of the SM, in MHz, over the moments of a stage in which a GPU was at work; `throttled` is the share of these in
    which heat, hardware or a power brake held them down, `capped` in which a power limit did.
    """

    median: float
    lowest: int
    highest: int
    throttled: float
    capped: float


@dataclass(frozen=True)
class Context:
    """Where the figures of a run were measured. `harness` is the commit whose bench files measured them."""

    run_id: str
    pod: str
    commit: str
    harness: str
    dirty: bool
    runbook: str
    hostname: str | None
    boot_id: str | None
    gpus: tuple[str, ...]
    gpu_ids: tuple[str, ...]
    cpu: str | None
    driver: str | None
    python: str | None
    torch_cuda: str | None
    packages: Mapping[str, str]
    clocks: Mapping[str, Clocks] = field(default_factory=dict)
    statuses: Mapping[str, Status] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, str]:
        """What else may move a figure, as far as it is known."""
        told = {"driver": self.driver, "Python": self.python, "CUDA runtime": self.torch_cuda}
        return {name: text for name, text in {**told, **{n: self.packages.get(n) for n in _PACKAGES}}.items() if text}

    @property
    def device(self) -> str:
        """The GPUs' model, else the CPU's."""
        return ", ".join(dict.fromkeys(self.gpus)) or self.cpu or "unknown"


@dataclass(frozen=True)
class Figures:
    """What a run measured; figures of stages that did not pass are there too, `context.statuses` tells."""

    context: Context
    figures: Sequence[Figure]

    @cached_property
    def by_identity(self) -> Mapping[Identity, Figure]:
        return {figure.identity: figure for figure in self.figures}

    def passed(self, figure: Figure) -> bool:
        """Whether the stage of the figure passed: no other is compared."""
        return self.context.statuses.get(figure.identity.stage) == "passed"
