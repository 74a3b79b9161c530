"""A comparison's run -> its trials, and what kept it from timing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.figures.comparison import Comparison, Trial, compare
from orchestrator.figures.run import of_run
from orchestrator.shared.plan import Plan
from orchestrator.verdict.rules import none_passed
from orchestrator.verdict.status import Status


def comparison_of(directory: Path, plan: Plan, statuses: Mapping[str, Status]) -> Comparison:
    """What the run of a comparison in `directory` says; `statuses` are those of its stages, by name."""
    measured = of_run(directory, plan, statuses)
    trials = []
    for stage in plan["stages"]:
        trial, name = stage.get("trial"), stage["name"]
        if trial and statuses.get(name) == "passed":
            own = [figure for figure in measured.figures if figure.identity.stage == name]
            named = {figure.identity._replace(stage=trial["of"]): figure for figure in own}
            trials.append(Trial(trial["block"], trial["side"], named, measured.context.clocks.get(name)))
    return compare(trials, plan["comparison"]["threshold"])


@dataclass(frozen=True)
class Shortfall:
    """Stages that did not pass, of `of` that do the same for one side: one that builds or tests, or a bench's runs."""

    name: str
    stages: Sequence[str]
    of: int

    @property
    def is_whole(self) -> bool:
        """Whether none of them passed."""
        return len(self.stages) == self.of


def shortfalls(plan: Plan, statuses: Mapping[str, Status]) -> list[Shortfall]:
    """What did not pass. Where that goes ahead of the timing, nothing was timed, and no bench is named. Runs of a bench
    that was given up count for nothing.
    """
    alike: dict[str, list[str]] = {}
    for stage in plan["stages"]:
        trial = stage.get("trial")
        if none_passed(stage, statuses):
            continue
        alike.setdefault(f"{trial['of']} of {trial['side']}" if trial else stage["name"], []).append(stage["name"])
    found = [
        Shortfall(name, wrong, len(stages))
        for name, stages in alike.items()
        if (wrong := [stage for stage in stages if statuses.get(stage) != "passed"])
    ]
    ahead = {stage["name"] for stage in plan["stages"] if "trial" not in stage}
    return [one for one in found if one.name in ahead] or found
