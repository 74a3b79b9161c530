"""How long a run may take and what it may cost: as it was limited, and as it is expected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.config.inventory import Pod
from orchestrator.errors import InputError
from orchestrator.shared.text import count
from orchestrator.text import seconds as duration_text

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s?)?")
_UNITS = (3600.0, 60.0, 1.0)

# What makes a stage the same in another run: its name and its argv.
StageKey = tuple[str, tuple[str, ...]]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RunLimit(BaseModel):
    """What a whole run may take: `seconds`, of which `spent` had passed at its launch; `given` as it was asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    given: str
    seconds: _Positive
    spent: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    def after(self, spent: float) -> RunLimit:
        """The limit of a run that is launched when `spent` seconds have passed."""
        return self.model_copy(update={"spent": round(spent, 3)})


class Estimate(BaseModel):
    """What the stages may take, in seconds: by what they took in earlier `runs`; those of `by_limit`, which did not run
    there yet, by their wall limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: float
    cost: float | None
    runs: int
    by_limit: list[str]


@dataclass(frozen=True)
class History:
    """Seconds that stages took in earlier `runs` on the pod, newest first."""

    runs: int = 0
    durations: Mapping[StageKey, Sequence[float]] = field(default_factory=dict)


NO_HISTORY = History()


class _Bounded(Protocol):
    @property
    def wall(self) -> float: ...


class _Stage(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def argv(self) -> list[str]: ...
    @property
    def limits(self) -> _Bounded: ...


def duration(text: str) -> float:
    """Seconds of `90m`, `1h30m`, `45s` or `2700`; InputError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    parts = match.groups(default="0") if match else ()
    found = sum(float(number) * unit for number, unit in zip(parts, _UNITS, strict=False))
    if not 0 < found < math.inf:
        raise InputError(f"expected a duration such as 90m, 1h30m or 2700 (seconds), not {text!r}")
    return found


def run_limit(pod: Pod, max_time: str | None, max_cost: float | None) -> RunLimit | None:
    """The tighter of the two limits, either of which may be absent. InputError for what cannot be one."""
    found = []
    if max_time is not None:
        found.append(RunLimit(given=f"--max-time {max_time.strip()}", seconds=duration(max_time)))
    if max_cost is not None:
        if not pod.cost_per_hour:
            raise InputError(f"--max-cost: pod {pod.name!r} has no price: expected its cost_per_hour in the inventory")
        seconds = max_cost / pod.cost_per_hour * 3600
        if not 0 < seconds < math.inf:
            raise InputError(f"--max-cost: expected an amount above 0 that buys some time, not {max_cost:g}")
        given = f"--max-cost {max_cost:g} (at {pod.cost_per_hour:g} an hour)"
        found.append(RunLimit(given=given, seconds=seconds))
    return min(found, key=lambda limit: limit.seconds, default=None)


def estimate(stages: Iterable[_Stage], history: History, cost_per_hour: float | None) -> Estimate:
    """What `stages` may take, by `history` where it knows them."""
    total = 0.0
    by_limit = []
    for stage in stages:
        taken = history.durations.get((stage.name, tuple(stage.argv)))
        total += median(taken) if taken else stage.limits.wall
        if not taken:
            by_limit.append(stage.name)
    cost = None if cost_per_hour is None else round(total * cost_per_hour / 3600, 4)
    return Estimate(seconds=round(total, 3), cost=cost, runs=history.runs, by_limit=by_limit)


def told(expected: Estimate, stages: int, limit: RunLimit | None) -> str:
    """The estimate of a run of so many `stages`, as a sentence for people."""
    price = "" if expected.cost is None else f" ({expected.cost:.4g} by its cost_per_hour)"
    took = f"{duration_text(expected.seconds)}{price}"
    unknown = len(expected.by_limit)
    if not unknown:
        text = f"the stages take about {took}, by {count(expected.runs, 'earlier run')} on this pod"
    elif unknown == stages:
        text = f"the stages take at most {took}, by their limits: none of them has passed on this pod yet"
    else:
        known = f"{count(stages - unknown, 'stage')} by {count(expected.runs, 'earlier run')} on this pod"
        text = f"the stages take at most about {took}: {known}, {unknown} by their limits"
    return f"{text}; the run is ended at {limit.given}" if limit else text
