"""A comparison's run -> its trials, and what kept it from timing anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.figures.comparison import Comparison, Trial, compare
from orchestrator.figures.run import of_run
from orchestrator.shared.plan import Plan
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


def not_passed(plan: Plan, statuses: Mapping[str, Status]) -> list[str]:
    """The stages that had to pass before anything was timed, and did not."""
    ahead = [stage["name"] for stage in plan["stages"] if "trial" not in stage]
    return [name for name in ahead if statuses.get(name) != "passed"]
