"""The plans of two commits -> one plan that builds and tests both, and then runs their benches in turn."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from orchestrator.config.runbook import Runbook, named_programs
from orchestrator.config.runbook import Stage as RunbookStage
from orchestrator.errors import InputError, PodError
from orchestrator.plan.absent import Tree, in_tree
from orchestrator.plan.blocks import SIDES, Side, trials
from orchestrator.plan.plan import with_id
from orchestrator.shared.globs import matcher
from orchestrator.shared.plan import STAGE_NAME, Beside, Comparison, Plan, Stage, artifacts_of
from orchestrator.verdict.artifacts.asked import has_figures

# The plan's own commit is A; the control is A once more, in a tree of its own.
_BESIDE: Mapping[Side, str] = {"a": "", "b": "b", "control": "control"}
_FROM_TREE = "tree:"
# A bench that failed in so many blocks will fail in the others too.
_TRIED = 2


@dataclass(frozen=True)
class Compared:
    """The plan of a comparison; `bases` names, of each of its stages, the runbook's."""

    plan: Plan
    bases: Mapping[str, str] = field(default_factory=dict)


def benches(runbook: Runbook, wanted: Sequence[str]) -> list[str]:
    """The stages to time: those that were named, else all that say what they measure. InputError if there are none."""
    measuring = [stage.name for stage in runbook.stages if _measures(stage)]
    for name in wanted:
        if name not in {stage.name for stage in runbook.stages}:
            raise InputError(f"runbook {runbook.name!r} has no stage {name!r}: expected one of {', '.join(measuring)}")
        if name not in measuring:
            raise InputError(
                f"stage {name!r} does not say what it measures: expected `figures` with keys and measures beside one "
                "of its artifacts (docs/figures.md)"
            )
    if not measuring:
        raise InputError(
            f"no stage of runbook {runbook.name!r} says what it measures: expected `figures` (docs/figures.md)"
        )
    return [name for name in measuring if name in wanted] if wanted else measuring


def before(runbook: Runbook, timed: Sequence[str], *, tests: bool = True) -> list[str]:
    """What has to be built and has to pass before these: what they need, what builds in the tree before them, and with
    `tests`, where none of that runs any, the runbook's tests.
    """
    stages = {stage.name: stage for stage in runbook.stages}
    last = max(number for number, stage in enumerate(runbook.stages) if stage.name in timed)
    needed = {need for name in timed for need in stages[name].needs}
    needed |= {stage.name for stage in runbook.stages[:last] if stage.builds or _makes_in_tree(stage)}
    if tests and not any(stages[name].is_pytest for name in _closure(needed, stages)):
        needed |= {stage.name for stage in runbook.stages if stage.is_pytest and not _measures(stage)}
    needed = _closure(needed - set(timed), stages)
    return [name for name in stages if name in needed]


def harness(runbook: Runbook, timed: Sequence[str], tree: Tree) -> dict[str, set[str]]:
    """By stage the commit's files that measure: those that its `harness` says, else those that it names to run."""
    return {stage.name: _harness(stage, tree) for stage in runbook.stages if stage.name in timed}


def _harness(stage: RunbookStage, tree: Tree) -> set[str]:
    named = [in_tree(path, stage, tree.commit) for path in (*stage.paths, *named_programs(stage))]
    is_harness = matcher(stage.harness or [path for path in named if not path.startswith(("{", "/"))])
    return {path for path in tree.files if is_harness(path)}


def comparison_plan(
    a: Plan, b: Plan, runbook: Runbook, timed: Sequence[str], blocks: int, told: Comparison
) -> Compared:
    """One plan of both: what builds and tests each of them, then `blocks` in which each side's bench runs once: in an
    order drawn at random, and in the next block back. A bench of which one side passed in neither of the first two is
    not run again. PodError for a bench that is no part of a run on this pod.
    """
    for left in (*a["left_out"], *b["left_out"]):
        if left["name"] in timed:
            raise PodError(f"stage {left['name']!r} is no part of a run on pod {a['pod']!r}: {left['reason']}")
    of_side = {"a": a, "b": b, "control": a}
    stages = {side: {stage["name"]: stage for stage in plan["stages"]} for side, plan in of_side.items()}
    first = [name for name in before(runbook, timed) if name in stages["a"] and name in stages["b"]]
    builders = {name for name in first if _builds(stages["a"][name])}
    builders = {name for name in first if name in _needed_by(builders, stages["a"])}
    ahead: list[tuple[str, Side]] = [
        (name, side) for name in first for side in SIDES if side != "control" or name in builders
    ]
    made: list[tuple[str, Stage]] = []
    for name, side in ahead:
        needs = [f"{need}.{side}" for need in stages[side][name]["needs"] if (need, side) in ahead]
        made.append((name, _of(stages[side][name], f"{name}.{side}", side, needs)))
    order = random.Random(a["nonce"])
    gate = [stage["name"] for _, stage in made]
    first_tries: dict[str, dict[Side, list[str]]] = {name: {side: [] for side in SIDES} for name in timed}
    for trial, place in trials(timed, blocks, order):
        name = f"{trial['of']}.{trial['block']:02}.{place}.{trial['side']}"
        own: Stage = {**_of(stages[trial["side"]][trial["of"]], name, trial["side"], gate), "trial": trial}
        tries = first_tries[trial["of"]]
        if trial["block"] < _TRIED:
            tries[trial["side"]].append(name)
        else:
            own["needs_any"] = list(tries.values())
        made.append((trial["of"], own))
    plan: Plan = {
        **a,
        "stages": [stage for _, stage in made],
        "estimate": None,
        "comparison": told,
        "beside": {"b": _beside(b), "control": _beside(a)},
    }
    return Compared(with_id(plan), {stage["name"]: base for base, stage in made})


def _of(stage: Stage, name: str, side: Side, needs: Sequence[str]) -> Stage:
    """The stage of one side, under a name and with a folder of its own."""
    if not STAGE_NAME.fullmatch(name):
        raise InputError(f"stage {stage['name']!r} has too long a name for a comparison: expected at most 48 letters")
    expect: dict[str, Any] = dict(stage["expect"])
    if "artifacts" in expect:
        expect["artifacts"] = [{**asked, "path": f"{name}/{asked['path']}"} for asked in expect["artifacts"]]
    made = cast(Stage, {**stage, "name": name, "needs": list(needs), "folder": name, "expect": expect})
    if _BESIDE[side]:
        made["beside"] = _BESIDE[side]
    return made


def _beside(plan: Plan) -> Beside:
    return Beside(
        commit=plan["commit"],
        commit_object=plan["commit_object"],
        ancestry=plan["ancestry"],
        tree=plan["tree"],
        submodules=plan["submodules"],
        environment=plan["environment"],
    )


def _measures(stage: RunbookStage) -> bool:
    return any(map(has_figures, stage.expect.get("artifacts", ())))


def _makes_in_tree(stage: RunbookStage) -> bool:
    return any((asked.get("from") or "").startswith(_FROM_TREE) for asked in stage.expect.get("artifacts", ()))


def _builds(stage: Stage) -> bool:
    sources = (str(asked.get("from") or "") for asked in artifacts_of(stage))
    return bool(stage["builds"]) or any(source.startswith(_FROM_TREE) for source in sources)


def _closure(names: set[str], stages: Mapping[str, RunbookStage]) -> set[str]:
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += stages[name].needs
    return found


def _needed_by(names: set[str], stages: Mapping[str, Stage]) -> set[str]:
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found and name in stages:
            found.add(name)
            left += stages[name]["needs"]
    return found
