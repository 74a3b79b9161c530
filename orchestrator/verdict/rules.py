"""The status of a stage, by rule, from what it left behind: the first rule of the table that matches decides.

The agent judges with this to know which later stages may run; the laptop judges again, and only that counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from orchestrator.shared import stage_record
from orchestrator.shared.plan import FORMATS, Stage
from orchestrator.shared.stage_record import Executed, File
from orchestrator.shared.text import plain
from orchestrator.verdict import (
    endings,
    execution,
    exit_codes,
    integrity,
    last_words,
    output,
    routes,
    runners,
    sabotage,
    tests,
)
from orchestrator.verdict.artifacts import claimed_device, unmeasured
from orchestrator.verdict.artifacts import evidence as artifacts
from orchestrator.verdict.case import Case, Run
from orchestrator.verdict.failures import Cause, Failure, failures, grouped
from orchestrator.verdict.raised import Raised
from orchestrator.verdict.status import Status
from orchestrator.verdict.tests import Skips

_REASON_LENGTH = 400
_MOST_FAILURES = 20


class Rule(NamedTuple):
    """A status, when a stage gets it (a row of docs/verdict.md), and what finds the reason, if there is one; `formats`
    are those of the runs that it is for.
    """

    status: Status
    when: str
    finds: Callable[[Case], Optional[str]]
    formats: Tuple[int, ...] = FORMATS


@dataclass(frozen=True)
class Judgement:
    """A stage's status with the sentence that says why, and what its evidence holds.

    `tests` counts outcomes (empty if no session was seen) and lists what did not simply pass; `routes` maps an
    operation to the number of passed tests for each route that they recorded; `artifacts` are those asked for that are
    there; `executed` has the launches by device, `used_cuda` says whether anything was computed on CUDA.
    `skips` are what did not simply pass, by why. Of a stage that passed, `doubts` are what it says that only a person
    can judge; of one that did not, `failures` are the first tests that failed, `causes` what all of them come to,
    `raised` is the exception that one without a pytest has printed last, `tails` are the last lines of its streams.
    """

    status: Status
    reason: str
    tests: tests.Summary = field(default_factory=lambda: tests.Summary())
    routes: Dict[str, Dict[str, int]] = field(default_factory=dict)
    artifacts: List[File] = field(default_factory=list)
    kills: sabotage.Kills = field(default_factory=lambda: sabotage.Kills())
    executed: Dict[str, Executed] = field(default_factory=dict)
    used_cuda: bool = False
    failures: List[Failure] = field(default_factory=list)
    causes: List[Cause] = field(default_factory=list)
    doubts: List[str] = field(default_factory=list)
    skips: List[Skips] = field(default_factory=list)
    raised: Optional[Raised] = None
    tails: Dict[str, List[str]] = field(default_factory=dict)


def judge_stage(run: Run, stage: Stage, told: object, statuses: Mapping[str, Status]) -> Judgement:
    """Judge one stage of a plan by what the journal tells of it (None: nothing) and the files of its run.

    `statuses` are those of the stages before it. Nothing in the record or the files, however malformed, raises.
    """
    case = Case(run, stage, None, statuses)
    if told is not None:
        try:
            case.record = stage_record.read(told)
        except ValueError as e:
            case.malformed = str(e)
    status, reason = next(_matches(case), ("passed", ""))
    judgement = Judgement(
        status,
        plain(reason, _REASON_LENGTH),
        tests.summary(case),
        routes.taken(case),
        artifacts.delivered(case),
        sabotage.summary(case),
        case.record["executed"] if case.record else {},
        bool(case.record and case.record["used_cuda"]),
        skips=tests.skips(case),
    )
    if status == "passed":
        of = (last_words, runners, unmeasured, claimed_device)
        return replace(judgement, doubts=[doubt for each in of for doubt in each.doubts(case)])
    return _explained(judgement, case)


def _explained(judgement: Judgement, case: Case) -> Judgement:
    found = list(failures(case.session))
    return replace(
        judgement,
        failures=found[:_MOST_FAILURES],
        causes=grouped(found)[:_MOST_FAILURES],
        raised=endings.raised(case),
        tails=endings.tails(case),
    )


def blocked_by_plan(stage: Stage, statuses: Mapping[str, Status]) -> Optional[str]:
    """Why a stage is not even tried, by what is known before it: its plan, and the stages before it."""
    for need in stage["needs"]:
        if statuses.get(need) != "passed":
            return f"needs {need}, which is {statuses.get(need, 'not part of this run')}"
    group = none_passed(stage, statuses)
    return f"needs one of {', '.join(group)}, none of which has passed" if group else stage["blocked"]


def none_passed(stage: Stage, statuses: Mapping[str, Status]) -> Sequence[str]:
    """The first group of stages of which it needs one, and none has passed."""
    groups = stage.get("needs_any", ())
    return next((group for group in groups if all(statuses.get(need) != "passed" for need in group)), ())


def _matches(case: Case) -> Iterator[Tuple[Status, str]]:
    for rule in RULES:
        reason = rule.finds(case) if case.run.format in rule.formats else None
        if reason:
            yield rule.status, reason


def _malformed(case: Case) -> Optional[str]:
    return case.malformed and f"the record of this stage is malformed: {case.malformed}"


def _not_run(case: Case) -> Optional[str]:
    return case.run.never_ended if case.record is None else None


def _cancelled(case: Case) -> Optional[str]:
    reasons = {"cancel": "cancelled by a person", "limit": "ended by the limit that was set for the whole run"}
    return reasons.get(str(case.evidence["ended_by"]))


def _blocked(case: Case) -> Optional[str]:
    reason = blocked_by_plan(case.stage, case.statuses) or case.evidence["blocked"]
    if reason or not case.evidence["started"]:
        return str(reason or "it was not started")
    return tests.collected_nothing(case)


def _timed_out(case: Case) -> Optional[str]:
    limit = case.stage["limits"]["wall"]
    running = endings.during(case)
    return f"still running at its limit of {limit:g} s{running}" if case.evidence["ended_by"] == "wall" else None


def _stalled(case: Case) -> Optional[str]:
    limit = case.stage["limits"]["silence"]
    return f"no output for {limit:g} s{endings.during(case)}" if case.evidence["ended_by"] == "silence" else None


def _crashed(case: Case) -> Optional[str]:
    return endings.by_signal(case)


def _failed(case: Case) -> Optional[str]:
    return tests.failures(case) or endings.by_exit_code(case) or tests.failures_in_junit(case)


def _unmet(case: Case) -> Optional[str]:
    return next(artifacts.of_weight(case, "unmet"), None)


def _failed_behind_a_shell(case: Case) -> Optional[str]:
    return exit_codes.lost(case) or output.shell_error(case) or runners.failures(case)


def _too_few(case: Case) -> Optional[str]:
    return tests.too_few(case) or runners.skips(case)


def _untrusted(case: Case) -> Optional[str]:
    return _first(integrity.doubts(case), artifacts.doubts(case), tests.doubts(case))


def _not_there(case: Case) -> Optional[str]:
    if not case.stage["pytest"] and not artifacts.asked(case) and not case.session.started:
        return "no evidence asked"
    return _first(
        execution.problems(case),
        artifacts.problems(case),
        routes.problems(case),
        tests.unchecked(case),
        runners.none_ran(case),
        exit_codes.unseen(case),
        output.tracebacks(case),
        output.unawaited(case),
    )


def _not_at_home(case: Case) -> Optional[str]:
    return case.run.not_as_recorded(case.evidence)


def _first(*found: Iterator[Optional[str]]) -> Optional[str]:
    return next((wrong for some in found for wrong in some if wrong), None)


RULES: Tuple[Rule, ...] = (
    Rule("invalid", "its record in the journal is malformed", _malformed),
    Rule("not_run", "the run ended before it: cancelled, at its limit, or because its agent died", _not_run),
    Rule(
        "cancelled",
        "a person cancelled it, or the limit that was set for the whole run (`--max-time`, `--max-cost`) was reached",
        _cancelled,
    ),
    Rule(
        "blocked",
        "a path, program, module or package that it names is absent; a stage that it needs did not pass; a promised "
        "device is absent; someone else uses a bench's GPU; pytest collected nothing. It does not run, the others do",
        _blocked,
    ),
    Rule("timed_out", "over the wall limit. Its whole process group is ended", _timed_out),
    Rule("stalled", "no output for the silence limit. Its whole process group is ended", _stalled),
    Rule("crashed", "ended by a signal, which is named", _crashed),
    Rule(
        "failed",
        "exit code not 0, failures or errors in the JUnit file, or an AssertionError that a test left lying in a "
        "thread, a pool, a child or an `except`",
        _failed,
    ),
    Rule("failed", "a check of an artifact's values does not hold: the row and the value are named", _unmet, (2,)),
    Rule(
        "failed",
        "behind another program: an exit code other than 0 that it neither tested nor passed on (to print it is no "
        "test), unless `allow_exit_codes` says that it is meant; an error that a shell or make shows; failures in the "
        "closing lines of a runner of tests, or a last line that counts some (`3 checks, 1 failed`)",
        _failed_behind_a_shell,
    ),
    Rule(
        "invalid",
        "the evidence cannot be trusted: missing, not from this stage, JUnit and the agent's own plugin disagree, tree"
        " or environment changed, a module of the tree's name imported from elsewhere, or from another copy in the "
        "tree, someone else on a bench's GPU, kernels of a CUDA stage in the interpreter; an artifact older than the "
        "stage, equal to a file of the commit in any form or to an earlier run's figures, or of another commit (unless"
        " `reproducible: true`), a Git LFS pointer, with `cuda` as its device where the pod has no GPU, or against a "
        "check with `impossible: true`",
        _untrusted,
    ),
    Rule(
        "skipped",
        "fewer passes than `min_passed`; a skip, xfail, XPASS, rerun or deselection that `allow_skips` does not allow: "
        "also a test that holds assertions of which none ran, or one that is written and was not collected; skips of "
        "another runner, likewise",
        _too_few,
    ),
    Rule(
        "invalid",
        "what was asked for is not there: the GPU's work of a stage for CUDA, a route that was seen; an artifact, a "
        "column, a row, a key with something under it, a number where a column holds numbers, a text that it must "
        "hold; a JSON file, or each row of a table, that says itself that it failed; a test that checked nothing "
        "(`checked: true`); an artifact that holds a secret's value; another runner's tests, of which none ran; "
        "checked evidence, where the exit codes behind a shell were not recorded; or no evidence was asked for at all",
        _not_there,
    ),
    Rule(
        "invalid",
        "its tests pass although a function in `kills` returns wrong results, or with one of its `mutants`; or such a "
        "function is never called, or no test fails by an assertion or a comparison",
        sabotage.unnoticed,
    ),
    Rule("invalid", "a file that came home is not as the agent recorded it on the pod", _not_at_home),
    Rule("passed", "none of these", lambda case: None),
)
