"""The verdict line: what it says, and what it does not cover."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.results.model import OWN_END, PlanSource, StageResult
from orchestrator.shared.plan import Plan, is_not_the_commits, with_sabotage
from orchestrator.shared.tree import without_files
from orchestrator.text import count, listing, seconds
from orchestrator.verdict.status import Verdict


@dataclass(frozen=True)
class Course:
    """How a run went beside its stages: `how_far`, if not to its end; how often it was `resumed`; `strays`, what may
    have disturbed it; whose copy of the plan it is judged by; how many files are `left` on the pod.
    """

    how_far: str | None
    resumed: int
    strays: str
    plan_from: PlanSource
    left: int


def summary(verdict: Verdict, plan: Plan, stages: list[StageResult], course: Course) -> str:
    """The verdict line: what it says, and what it does not cover."""
    cuda_left_out = sum(stage["cuda"] for stage in plan["left_out"])
    other_left_out = len(plan["left_out"]) - cuda_left_out
    allowed = sum(int(stage.tests.get("allowed_skips", 0)) for stage in stages)
    idle = sum(stage.tests.get("unchecked", 0) + len(stage.tests.get("vacuous", ())) for stage in stages)
    never_ran = sum(stage.tests["never_ran"]["count"] for stage in stages if "never_ran" in stage.tests)
    not_passed = [s for s in stages if s.status != "passed"]
    how_many = f"{len(stages) - len(not_passed)} of {count(len(stages), 'stage')} passed"
    on_gpu = sum(stage.used_cuda for stage in stages)
    optional = [s.name for s in not_passed if not s.required]
    absent = without_files(plan["submodules"])
    parts = [
        f"{verdict} on {_device(verdict, plan, stages)}",
        how_many if not_passed else "",
        f"{count(cuda_left_out, 'CUDA stage')} not part of this run" if cuda_left_out else "",
        f"{count(other_left_out, 'other stage')} not part of this run" if other_left_out else "",
        f"{count(allowed, 'allowed skip')}" if allowed else "",
        f"{count(idle, 'test')} checked nothing" if idle else "",
        f"{count(never_ran, 'assertion')} of passed tests never ran" if never_ran else "",
        _doubts(stages),
        _sabotage(plan, stages),
        how_many if not not_passed else "",
        f"optional and not passed: {', '.join(optional)}" if optional else "",
        "no required stage applied" if not any(stage.required for stage in stages) else "",
        f"{count(on_gpu, 'stage')} ran kernels on the GPU" if plan["promises"]["cuda"] else "",
        course.how_far or "",
        f"resumed {_times(course.resumed)} after its agent died" if course.resumed else "",
        "uncommitted changes were not part of this run" if plan["dirty"] else "",
        f"without the submodule {listing(absent)}" if absent else "",
        "judged by a runbook that the commit does not hold" if is_not_the_commits(plan["runbook"]) else "",
        course.strays,
        f"{count(course.left, 'file')} stay on the pod" if course.left else "",
        "judged by the pod's copy of the plan, for it was not launched from here" if course.plan_from == "pod" else "",
    ]
    return "; ".join(part for part in parts if part)


def _times(number: int) -> str:
    return "once" if number == 1 else count(number, "time")


def told_of_command(stages: list[StageResult], how_far: str | None) -> str:
    """How a command ended; that it has no verdict, whatever its exit code."""
    command = next(iter(stages), None)
    if command is None or command.status not in OWN_END:
        told = f"the command did not run to an end of its own: {how_far or (command.reason if command else '')}"
    else:
        how = f"was ended by {command.signal}" if command.signal else f"ended with exit code {command.exit_code}"
        told = f"the command {how} after {seconds(command.seconds)}"
    return f"{told}; a command has no verdict"


def told_of_comparison(plan: Plan, stages: list[StageResult], how_far: str | None) -> str:
    """Which commits, and how many of the stages passed; what they say of each other is for figures."""
    asked = plan["comparison"]
    passed = sum(stage.status == "passed" for stage in stages)
    told = f"compared {asked['a'][:7]} with {asked['b'][:7]}; {passed} of {count(len(stages), 'stage')} passed"
    return f"{told}; {how_far}" if how_far else told


def _doubts(stages: list[StageResult]) -> str:
    """What was seen of stages that passed, and can be judged by nobody but a person: how much, and the first of it."""
    doubts = [f"{stage.name}: {doubt}" for stage in stages if stage.status == "passed" for doubt in stage.doubts]
    return f"{count(len(doubts), 'doubt')} ({doubts[0]})" if doubts else ""


def _sabotage(plan: Plan, stages: list[StageResult]) -> str:
    """How much of the sabotage the tests noticed, or that it was left out."""
    asking = [s for s in plan["stages"] if s["expect"].get("kills") or s["expect"].get("mutants")]
    if asking and not with_sabotage(plan):
        return f"without the sabotage of {count(len(asking), 'stage')} (--no-sabotage)"
    killed = sum(stage.kills.get("killed", 0) for stage in stages)
    tried = sum(stage.kills.get("of", 0) for stage in stages)
    return f"{killed} of {count(tried, 'planted fault')} noticed" if tried else ""


def _device(verdict: Verdict, plan: Plan, stages: list[StageResult]) -> str:
    """CUDA where the verdict is about stages that need it, and a green one where one of them ran there; else CPU."""
    if not plan["promises"]["cuda"]:
        return "CPU"
    about = [
        stage
        for stage in stages
        if stage.cuda
        and (verdict != "passed" or (stage.status == "passed" and (stage.used_cuda or plan["format"] == 1)))
    ]
    return "CUDA" if about else "CPU"
