"""How long a run may take and what it may cost: as it was limited, and as it is expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from orchestrator.config.inventory import Pod
from orchestrator.config.words import seconds_of
from orchestrator.errors import InputError
from orchestrator.shared.plan import Estimate, RunLimit, Stage
from orchestrator.shared.text import count, plain
from orchestrator.text import seconds as duration_text

# What makes a stage the same in another run: its name and its argv.
StageKey = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class History:
    """Seconds that stages took in earlier `runs` on the pod, newest first."""

    runs: int = 0
    durations: Mapping[StageKey, Sequence[float]] = field(default_factory=dict)


NO_HISTORY = History()


def duration(text: str, where: str = "") -> float:
    """Seconds of `90m`, `1h30m`, `7d`, `45s` or `2700`; InputError, which begins with `where`, for anything else."""
    try:
        return seconds_of(text)
    except ValueError as e:
        raise InputError(f"{where}{e}") from e


def age(text: str, where: str = "") -> float:
    """As `duration`, but with its unit: a number alone, which days may be meant by, removes what is seconds old."""
    if text.strip()[-1:].isdigit():
        raise InputError(f"{where}expected a duration with its unit, such as 7d or 12h, got {plain(text, 60)!r}")
    return duration(text, where)


def run_limit(pod: Pod, max_time: str | None, max_cost: float | None) -> RunLimit | None:
    """The tighter of the two limits, either of which may be absent. InputError for what cannot be one."""
    found = []
    if max_time is not None:
        seconds = duration(max_time, "--max-time: ")
        found.append(RunLimit(given=f"--max-time {max_time.strip()}", seconds=seconds, spent=0.0))
    if max_cost is not None:
        if not pod.cost_per_hour:
            raise InputError(f"--max-cost: pod {pod.name!r} has no price: expected its cost_per_hour in the inventory")
        seconds = max_cost / pod.cost_per_hour * 3600
        if not 0 < seconds < math.inf:
            raise InputError(f"--max-cost: expected an amount above 0 that buys some time, not {max_cost:g}")
        given = f"--max-cost {max_cost:g} (at {pod.cost_per_hour:g} an hour)"
        found.append(RunLimit(given=given, seconds=seconds, spent=0.0))
    return min(found, key=lambda limit: limit["seconds"], default=None)


def after(limit: RunLimit, spent: float) -> RunLimit:
    """The limit of a run that is launched when `spent` seconds have passed."""
    return {**limit, "spent": round(spent, 3)}


def estimate(stages: Iterable[Stage], history: History, cost_per_hour: float | None) -> Estimate:
    """What `stages` may take, by `history` where it knows them."""
    total = 0.0
    known: dict[str, float] = {}
    by_limit = []
    for stage in stages:
        taken = history.durations.get((stage["name"], tuple(stage["argv"])))
        if taken:
            known[stage["name"]] = round(median(taken), 3)
        else:
            by_limit.append(stage["name"])
        total += median(taken) if taken else stage["limits"]["wall"]
    cost = None if cost_per_hour is None else round(total * cost_per_hour / 3600, 4)
    return Estimate(seconds=round(total, 3), cost=cost, runs=history.runs, by_limit=by_limit, stages=known)


def describe(expected: Estimate, cost_per_hour: float | None, limit: RunLimit | None) -> str:
    """The estimate of a run, as a sentence for people: nothing is known of stages that have not passed on this pod."""
    known, unknown = expected.get("stages", {}), len(expected["by_limit"])
    total = sum(known.values())
    price = "" if cost_per_hour is None else f" ({total * cost_per_hour / 3600:.4g} by its cost_per_hour)"
    took = f"about {duration_text(total)}{price}, by {count(expected['runs'], 'earlier run')} on this pod"
    if not known:
        text = "how long the stages take is unknown: none of them has passed on this pod yet"
    elif unknown:
        of_all = f"{len(known)} of {len(known) + unknown} stages {'takes' if len(known) == 1 else 'take'}"
        text = f"{of_all} {took}; how long the others take is unknown"
    else:
        text = f"the stages take {took}"
    return f"{text}; the run is ended at {limit['given']}" if limit else text
