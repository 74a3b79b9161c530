"""What kept runs measured, row by row, in the order of their commits; and what that recommends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.figures.model import Figures, Identity
from orchestrator.figures.trend import Step, steps
from orchestrator.verdict.artifacts.reading import Better

FORMAT = 1
"""Of what `to_json` writes."""
_NOT_MEASURED = {"throttled", "shared_gpu", "impossible"}
# What is recommended is of the newest runs, and of no row that was measured less often than this.
_MOST_RUNS = 5
_FEWEST = 3


class Value(NamedTuple):
    """A figure of one run, short: median, the 20th and the 80th percentile of its samples, and how many these are."""

    identity: Identity
    unit: str
    better: Better
    median: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True)
class Measured:
    """What one run measured in stages that passed; `moment` is its commit's, `where` what else may move a figure."""

    run_id: str
    commit: str
    moment: float
    pod: str
    device: str
    runbook: str
    where: Mapping[str, str]
    values: tuple[Value, ...]


class Point(NamedTuple):
    run: Measured
    value: Value


@dataclass(frozen=True)
class Trend:
    """One row over runs; of `steps` the last is the newest."""

    identity: Identity
    unit: str
    better: Better
    points: Sequence[Point]
    steps: Sequence[Step]

    def called(self, step: Step) -> str:
        """What became of the row: faster or slower, where the runbook says which way is better."""
        if self.better == "neither":
            return "higher" if step.ratio > 1 else "lower"
        return "better" if (step.ratio < 1) == (self.better == "lower") else "worse"

    def also(self, step: Step) -> list[str]:
        """What else was another from one side of the step to the other, as clauses."""
        before, after = self.points[step.at - 1].run, self.points[step.at].run
        names = [
            name for name in before.where.keys() | after.where.keys() if before.where.get(name) != after.where.get(name)
        ]
        told = [f"{name} {before.where.get(name, 'none')} to {after.where.get(name, 'none')}" for name in sorted(names)]
        return [*told, *(["the same commit"] if before.commit == after.commit else [])]


@dataclass(frozen=True)
class Threshold:
    """What a runbook asks: from which value of the key `along` on is one row better than another.

    Rows are told by `column` and keys; None for any stage.
    """

    name: str
    stage: str | None
    along: str
    faster: Mapping[str, str]
    than: Mapping[str, str]


class Ratio(NamedTuple):
    """One row over the other, where both were measured, in all `measured` times; below 1 the first is better."""

    at: float
    middle: float
    low: float
    high: float
    runs: int
    measured: int


@dataclass(frozen=True)
class Recommendation:
    """`value` is None where `rows` show none; `why` is a sentence."""

    name: str
    value: float | None
    why: str
    rows: Sequence[Ratio]


def measured(found: Figures, moment: float) -> Measured:
    """What history keeps of a run's figures."""
    context = found.context
    values = tuple(
        Value(figure.identity, figure.unit, figure.better, figure.median, *figure.middle, len(figure.samples))
        for figure in found.figures
        if found.passed(figure) and not _NOT_MEASURED.intersection(figure.flags)
    )
    return Measured(
        context.run_id,
        context.commit,
        moment,
        context.pod,
        context.device,
        context.runbook,
        {**context.versions, "pod": context.pod},
        values,
    )


def to_json(run: Measured) -> dict[str, Any]:
    """To be remembered; of a row's identity and numbers a list."""
    rows = [[*v.identity[:2], list(map(list, v.identity.row)), v.identity.column, *v[1:]] for v in run.values]
    facts = {name: getattr(run, name) for name in ("run_id", "commit", "moment", "pod", "device", "runbook")}
    return {**facts, "where": dict(run.where), "values": rows}


def from_json(told: Mapping[str, Any]) -> Measured:
    """ValueError, LookupError or TypeError for what `to_json` did not write."""
    values = tuple(
        Value(Identity(stage, artifact, tuple((k, v) for k, v in row), column), *rest)
        for stage, artifact, row, column, *rest in told["values"]
    )
    facts = {name: told[name] for name in ("run_id", "commit", "moment", "pod", "device", "runbook", "where")}
    return Measured(**facts, values=values)


def trends(runs: Iterable[Measured], wanted: Callable[[Identity], bool] = lambda identity: True) -> list[Trend]:
    """By row, over the runs in the order of their commits; rows of another unit or direction are other rows."""
    ordered = sorted(runs, key=lambda run: (run.moment, run.commit, run.run_id))
    found: dict[tuple[Identity, str, Better], list[Point]] = {}
    for run in ordered:
        for value in run.values:
            if wanted(value.identity):
                found.setdefault(value[:3], []).append(Point(run, value))
    return [
        Trend(identity, unit, better, points, steps([point.value.median for point in points]))
        for (identity, unit, better), points in found.items()
    ]


def recommended(asked: Threshold, runs: Sequence[Measured]) -> Recommendation:
    """From the newest runs that measured both rows: no data, no recommendation."""
    newest = sorted(runs, key=lambda run: (run.moment, run.run_id), reverse=True)
    ratios = _ratios(asked, newest)
    if not ratios:
        return Recommendation(asked.name, None, "not measured, so no threshold", [])
    along = asked.along
    few = [ratio.at for ratio in ratios if ratio.measured < _FEWEST]
    if few:
        why = f"measured fewer than {_FEWEST} times at {along}={few[-1]:g}, so no threshold"
        return Recommendation(asked.name, None, why, ratios)
    not_better = [ratio.at for ratio in ratios if ratio.high >= 1]
    better = [ratio.at for ratio in ratios if not not_better or ratio.at > not_better[-1]]
    if not better:
        why = f"not better at {along}={not_better[-1]:g}, the longest measured, so no threshold"
        return Recommendation(asked.name, None, why, ratios)
    return Recommendation(asked.name, better[0], f"better at every measured {along} from {better[0]:g} on", ratios)


def _ratios(asked: Threshold, newest: Iterable[Measured]) -> list[Ratio]:
    """At each value of the key, of the newest runs that have it."""
    found: dict[float, list[Ratio]] = {}
    for run in newest:
        faster, than = (_matching(run, asked, row) for row in (asked.faster, asked.than))
        for at in faster.keys() & than.keys():
            one, other = faster[at], than[at]
            if one.better == "higher":
                one, other = other, one
            if min(one.low, other.low) > 0 and len(found.setdefault(at, [])) < _MOST_RUNS:
                ends = (one.median / other.median, one.low / other.high, one.high / other.low)
                found[at].append(Ratio(at, *ends, 1, min(one.samples, other.samples)))
    return [_together(at, of) for at, of in sorted(found.items()) if of]


def _together(at: float, of: Sequence[Ratio]) -> Ratio:
    """Of several runs: the mean of the logarithms, and the widest ends."""
    middle = math.exp(sum(math.log(ratio.middle) for ratio in of) / len(of))
    low, high = min(ratio.low for ratio in of), max(ratio.high for ratio in of)
    return Ratio(at, middle, low, high, len(of), sum(ratio.measured for ratio in of))


def _matching(run: Measured, asked: Threshold, row: Mapping[str, str]) -> dict[float, Value]:
    """The values of one row by the number of the key `along`; a row that says nothing of a direction is no measure."""
    found: dict[float, Value] = {}
    for value in run.values:
        identity = value.identity
        keys = {"column": identity.column, **dict(identity.row)}
        at = _number(keys.get(asked.along))
        fits = asked.stage in (None, identity.stage) and all(keys.get(name) == text for name, text in row.items())
        if fits and at is not None and value.better != "neither":
            found[at] = value
    return found


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if math.isfinite(found) else None
