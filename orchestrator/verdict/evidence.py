"""The status of a stage, by rule, from what it left behind. The first rule that matches decides.

The agent judges with this to know which later stages may run; the laptop judges again, and only that counts.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.shared.files import Refused, open_inside
from orchestrator.shared.stage_record import misfit
from orchestrator.shared.text import count, listing, plain, python_error
from orchestrator.verdict import checks, junit, outcomes, routes

_REASON_LENGTH = 400
_MOST_LISTED = 1000


@dataclass(frozen=True)
class Judgement:
    """A stage's status with the sentence that says why, and what its evidence holds.

    `tests` counts outcomes (empty if no session was seen) and lists what did not simply pass; `routes` maps an op to
    the number of passed tests for each route that they recorded; `artifacts` are those owed that are there.
    """

    status: str
    reason: str
    tests: dict[str, Any] = field(default_factory=dict)
    routes: dict[str, dict[str, int]] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)


class Shortfall(NamedTuple):
    """Something that is not a pass: a test (or module) with its outcome, why, and whether the runbook allows it."""

    id: str
    outcome: str
    reason: str
    allowed: bool


@dataclass
class _Case:
    """A stage before the judge: what it owes, the recorded facts, and the evidence that could be read."""

    stage: Mapping[str, Any]
    record: Mapping[str, Any]
    run_dir: Path
    statuses: Mapping[str, str]
    devices: Collection[str] | None = None
    session: outcomes.Session = field(default_factory=outcomes.Session)
    junit_cases: list[junit.Case] = field(default_factory=list)
    session_problem: str | None = None
    junit_problem: str | None = None

    @property
    def owed_tests(self) -> Mapping[str, Any]:
        """What is asked of the tests; a pytest stage that does not say owes one pass."""
        return self.stage["expect"].get("tests") or {}

    @property
    def owed_artifacts(self) -> list[Mapping[str, Any]]:
        return list(self.stage["expect"].get("artifacts") or ())

    @property
    def is_pytest(self) -> bool:
        return bool(self.stage.get("pytest"))

    def recorded(self, path: str) -> Mapping[str, Any] | None:
        """The journal's entry of the file `path` of the run's directory."""
        return next((file for file in self.record["files"] if file["path"] == path), None)


def judge_stage(
    stage: Mapping[str, Any],
    record: Mapping[str, Any],
    run_dir: Path,
    statuses: Mapping[str, str],
    devices: Collection[str] | None = None,
) -> Judgement:
    """Judge one stage of a plan by its `stage_ended` record and the files in `run_dir`.

    `statuses` are those of the stages before it, `devices` the pod's as `routes.devices` gives them. Whether the files
    are those that the record hashed is for the caller to check. Nothing in the record or the files, however malformed,
    raises.
    """
    wrong = misfit(record)
    if wrong:
        return Judgement("invalid", f"the record of this stage is malformed: {wrong}")
    case = _Case(stage, record, Path(run_dir), statuses, devices)
    if record["started"] and case.is_pytest:
        _read_test_evidence(case)
    status, reason = _first_match(case)
    return Judgement(status, plain(reason, _REASON_LENGTH), _tests(case), _routes(case), _delivered(case))


def shortfalls(session: outcomes.Session, allow: list[str]) -> list[Shortfall]:
    """Every skip, xfail, XPASS and deselection of a session, each allowed or not by the patterns `allow`."""
    found = [(t.id, "skipped", t.reason) for t in session.with_outcome("skipped")]
    found += [(id_, "skipped", reason) for id_, reason in session.collect_skips.items()]
    found += [(t.id, "skipped", reason) for t in session.tests.values() for reason in t.skipped_subtests]
    found += [(t.id, "xfailed", f"xfail: {t.reason}") for t in session.with_outcome("xfailed")]
    found += [(t.id, "xpassed", f"xpass: {t.reason}") for t in session.with_outcome("xpassed")]
    found += [(id_, "rerun", f"rerun: {raised}") for id_, raised in session.reruns.items()]
    found += [(id_, "deselected", f"deselected: {id_}") for id_ in session.deselected]
    found += [(path, "deselected", f"ignored: {path}") for path in dict.fromkeys(session.ignored)]
    return [Shortfall(*item, any(re.search(pattern, item[2]) for pattern in allow)) for item in found]


def _first_match(case: _Case) -> tuple[str, str]:
    for status, rule in _RULES:
        reason = rule(case)
        if reason:
            return status, reason
    return "passed", ""


# Rule 1 to 8, in their order ------------------------------------------------------------------------------------


def _cancelled(case: _Case) -> str | None:
    reasons = {"cancel": "cancelled by a person", "limit": "ended by the limit that was set for the whole run"}
    return reasons.get(case.record["ended_by"])


def _blocked(case: _Case) -> str | None:
    for need in case.stage.get("needs") or ():
        if case.statuses.get(need) != "passed":
            return f"needs {need}, which is {case.statuses.get(need, 'not part of this run')}"
    reason = case.stage.get("blocked") or case.record["blocked"]
    if reason or not case.record["started"]:
        return str(reason or "it was not started")
    return _collected_nothing(case)


def _collected_nothing(case: _Case) -> str | None:
    session = case.session
    if not session.started or session.selected or session.tests or session.collect_errors:
        return None
    if case.record["exit_code"] not in (4, 5):  # usage error (a file or test that is not there), no tests
        return None
    if session.collect_skips:
        id_, reason = next(iter(session.collect_skips.items()))
        return f"pytest collected nothing: {id_} skipped itself: {reason}"
    if session.deselected:
        return f"pytest collected nothing: all {count(len(session.deselected), 'test')} deselected"
    return "pytest collected nothing"


def _timed_out(case: _Case) -> str | None:
    limit = case.stage["limits"]["wall"]
    return f"still running at its limit of {limit:g} s" if case.record["ended_by"] == "wall" else None


def _stalled(case: _Case) -> str | None:
    limit = case.stage["limits"]["silence"]
    return f"no output for {limit:g} s" if case.record["ended_by"] == "silence" else None


def _crashed(case: _Case) -> str | None:
    return f"ended by {case.record['signal']}" if case.record["signal"] else None


def _failed(case: _Case) -> str | None:
    bad = case.session.with_outcome("failed", "error")
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return f"{bad[0].id} {'failed' if bad[0].outcome == 'failed' else 'had an error'}: {bad[0].reason}{more}"
    for id_, reason in case.session.collect_errors.items():
        return f"{id_} could not be collected: {reason}"
    wrong = [c for c in case.junit_cases if c.outcome in ("failed", "error")]
    if wrong:
        return f"junit.xml holds {count(len(wrong), 'failure')}"
    code = case.record["exit_code"]
    return None if code == 0 else f"exit code {code}"


def _untrusted(case: _Case) -> str | None:
    return next((wrong for wrong in _doubts(case) if wrong), None)


def _too_few(case: _Case) -> str | None:
    if not case.is_pytest:
        return None
    owed = case.owed_tests
    refused = [s for s in shortfalls(case.session, owed.get("allow_skips") or []) if not s.allowed]
    if refused:
        first = refused[0]
        same = count(sum(s.outcome == first.outcome for s in refused), "test")
        others = count(sum(s.outcome != first.outcome for s in refused), "other shortfall")
        more = "" if others.startswith("0") else f"; {others}"
        why = "" if first.outcome == "deselected" else f": {first.reason}"
        return f"{same} {first.outcome}{why} ({first.id}){more}"
    empty = _named_in_vain(case.session)
    if empty:
        return f"no test was collected in {empty}"
    passed = case.session.with_outcome("passed")
    if len(passed) < owed.get("min_passed", 1):
        return f"{count(len(passed), 'test')} passed, expected at least {owed.get('min_passed', 1)}"
    for pattern in owed.get("must_pass") or ():
        if not any(re.search(pattern, test.id) for test in passed):
            return f"no test that matches {pattern!r} passed"
    return None


def _named_in_vain(session: outcomes.Session) -> str | None:
    """The first file or directory in pytest's arguments of which no test was even collected."""
    ids = [*session.collected, *session.collect_skips, *session.collect_errors]
    for path in (os.path.normpath(target.partition("::")[0]) for target in session.targets):
        inside = re.compile(re.escape(path) + r"(/|::|$)")
        if path != "." and not os.path.isabs(path) and not any(map(inside.match, ids)):
            return path
    return None


def _owed(case: _Case) -> str | None:
    if not case.is_pytest and not case.owed_artifacts:
        return "no evidence asked"
    unmet = (_artifact_problems(case), routes.problems(case.stage, _routes(case), case.devices), _tracebacks(case))
    return next((wrong for some in unmet for wrong in some if wrong), None)


_RULES: tuple[tuple[str, Callable[[_Case], str | None]], ...] = (
    ("cancelled", _cancelled),
    ("blocked", _blocked),
    ("timed_out", _timed_out),
    ("stalled", _stalled),
    ("crashed", _crashed),
    ("failed", _failed),
    ("invalid", _untrusted),
    ("skipped", _too_few),
    ("invalid", _owed),
)


# What makes evidence untrustworthy (rule 6) ---------------------------------------------------------------------


def _doubts(case: _Case) -> Iterator[str | None]:
    record = case.record
    changed = record["tree"]["changed"]
    if changed or not record["tree"]["ok"]:
        yield f"files of the commit were changed in the run's tree: {listing(changed)}"
    if record["stray_before"]:
        yield f"an earlier stage left files in the tree that are not the commit's: {listing(record['stray_before'])}"
    if not record["environment_ok"]:
        yield "the environment's installed files are not those that were recorded"
    if not record["journal_ok"]:
        yield "the agent's journal was changed by something else than the agent"
    for wrong in record.get("unseen_sessions", ()):
        yield f"a pytest that it ran behind another program, where no outcome counts, had not simply passed: {wrong}"
    for module in record["foreign_modules"]:
        yield f"module {module['name']} was imported from {module['file']}, outside the tree, which holds it too"
    use = record.get("gpu")
    if use and use["disturbed"]:
        yield f"someone else used the GPU while it ran, or just after: {use['disturbed']}"
    if case.stage.get("exclusive") and case.stage["cuda"] and not use:
        yield "whether it had the GPU to itself was not recorded"
    if case.stage.get("exclusive") and case.stage["cuda"] and record.get("used_cuda") is False:
        yield "it wants a GPU for itself, and no Python of it has used CUDA"
    if record["guarded"] is False:
        yield "Python ran with -I, -E or -S, or its report was damaged: where its modules came from is not known"
    if record["overwritten"]:
        yield f"it changed files that earlier stages had delivered: {listing(record['overwritten'])}"
    for artifact in record["artifacts"]:
        if artifact["existed_before"]:
            yield f"artifact {artifact['path']} was there before the stage"
    if case.is_pytest:
        yield case.session_problem
        yield _unfinished(case.session, record["exit_code"])
        yield _hidden_failure(case.session)
        yield case.junit_problem
        yield _disagreement(case)


def _unfinished(session: outcomes.Session, exit_code: int) -> str | None:
    """What shows that the session did not run to its end as it says."""
    if not session.started:
        return "the agent's pytest plugin was never started"
    if session.interrupted is not None:
        return f"pytest was stopped half-way: {session.interrupted}"
    if session.exit_status is None:
        return "pytest did not finish its session"
    if session.exit_status != exit_code:
        return f"pytest finished with {session.exit_status}, its process with {exit_code}"
    if Counter(session.collected) != Counter(session.selected) + Counter(session.deselected):
        total, selected, left = len(session.collected), len(session.selected), len(session.deselected)
        return f"{count(total, 'test')} collected, but {selected} selected and {left} deselected"
    ran = {test.id for test in session.tests.values() if test.finished and test.outcome != "unfinished"}
    if Counter(session.selected) != Counter(ran):
        return f"{count(len(session.selected), 'test')} selected, but {len(ran)} run to the end"
    return None


def _hidden_failure(session: outcomes.Session) -> str | None:
    """What shows that a failure was reported as something else, or could not happen."""
    for id_, raised in session.raised.items():
        if len(raised) > session.told[id_]:
            return f"{id_} raised {raised[0]}, but was reported {session.tests[id_].outcome}"
    for test in session.with_outcome("passed", "xpassed"):
        if test.id in session.uncalled:
            return f"{test.id} was reported {test.outcome}, but was never called"
    return "Python ran with -O, which leaves assertions out" if session.stripped else None


def _disagreement(case: _Case) -> str | None:
    """The first test of which junit.xml says something else than the agent's plugin."""
    written = Counter((c.key, c.outcome, repr(c.routes)) for c in case.junit_cases)
    names = {junit.case_key(id_): id_ for id_ in (*case.session.tests, *case.session.collect_skips)}
    seen = Counter((junit.case_key(t.id), _outcome_in_junit(t), repr(t.routes)) for t in case.session.tests.values())
    seen.update((junit.case_key(id_), "skipped", "{}") for id_ in case.session.collect_skips)
    for key, outcome, taken in seen - written:
        return f"the agent's plugin saw {names[key]} {outcome} with routes {taken}, junit.xml does not say so"
    for key, outcome, taken in written - seen:
        return f"junit.xml says {outcome} of {key} with routes {taken}, the agent's plugin does not"
    return None


def _outcome_in_junit(test: outcomes.Test) -> str:
    return "passed" if test.outcome in ("passed", "xpassed") and not test.skipped_subtests else "skipped"


# What is owed (rule 8) ------------------------------------------------------------------------------------------


def _artifact_problems(case: _Case) -> Iterator[str | None]:
    problems = {artifact["path"]: artifact["problem"] for artifact in case.record["artifacts"]}
    for owed in case.owed_artifacts:
        path = owed["path"]
        if problems.get(path):
            yield f"artifact {path} {problems[path]}"
        elif owed.get("from") == "stdout" and case.record["truncated"].get("stdout"):
            yield f"artifact {path} is not whole: {case.record['truncated']['stdout']} bytes of stdout were cut"
        else:
            yield _content_problem(case, owed)


def _content_problem(case: _Case, owed: Mapping[str, Any]) -> str | None:
    path = f"artifacts/{owed['path']}"
    if case.recorded(path) is None:
        return f"artifact {owed['path']} is missing"
    try:
        with open_inside(case.run_dir, path) as f:
            wrong = checks.problem_with(owed, f)
    except (Refused, OSError) as e:
        wrong = _clause(e)
    return f"artifact {owed['path']} {wrong}" if wrong else None


def _tracebacks(case: _Case) -> Iterator[str]:
    """Exit code 0 after a traceback: a shell or an `except` has swallowed it. Those that pytest shows are its own."""
    if case.is_pytest or case.stage["expect"].get("allow_tracebacks"):
        return
    name = case.stage["name"]
    texts = [f"artifacts/{owed['path']}" for owed in case.owed_artifacts if owed.get("kind", "text") == "text"]
    for path in (f"stages/{name}/stderr", f"stages/{name}/stdout", *texts):
        with contextlib.suppress(Refused, OSError), _open_recorded(case, path) as f:
            error = python_error(f)
            if error:
                yield f"{path} holds {error}, although the exit code is 0"


# The evidence ---------------------------------------------------------------------------------------------------


def _read_test_evidence(case: _Case) -> None:
    folder = f"stages/{case.stage['name']}"
    try:
        with _open_recorded(case, f"{folder}/pytest.jsonl") as f:
            case.session = outcomes.read(f)
    except (outcomes.Malformed, Refused, OSError) as e:
        case.session_problem = f"the report of the agent's pytest plugin {_clause(e)}"
    try:
        with _open_recorded(case, f"{folder}/junit.xml") as f:
            case.junit_cases = junit.parse(f)
    except (junit.Malformed, Refused, OSError) as e:
        case.junit_problem = f"junit.xml {_clause(e)}"


def _open_recorded(case: _Case, path: str) -> Any:
    if case.recorded(path) is None:
        raise Refused("is missing")
    return open_inside(case.run_dir, path)


def _clause(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def _tests(case: _Case) -> dict[str, Any]:
    session = case.session
    if not session.started:
        return {}
    listed = shortfalls(session, case.owed_tests.get("allow_skips") or [])
    short = Counter(s.outcome for s in listed)
    return {
        "collected": len(session.collected),
        "passed": len(session.with_outcome("passed")),
        "failed": len(session.with_outcome("failed")),
        "errors": len(session.with_outcome("error")) + len(session.collect_errors),
        **{outcome: short[outcome] for outcome in ("skipped", "xfailed", "xpassed", "rerun", "deselected")},
        "allowed_skips": sum(s.allowed for s in listed),
        "not_passed": [{**s._asdict(), "id": plain(s.id), "reason": plain(s.reason)} for s in listed[:_MOST_LISTED]],
    }


def _routes(case: _Case) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for test in case.session.with_outcome("passed"):
        for name, values in test.routes.items():
            counts = found.setdefault(plain(name[len("route.") :], 80), {})
            for value in {plain(value, 80) for value in values}:
                counts[value] = counts.get(value, 0) + 1
    return found


def _delivered(case: _Case) -> list[dict[str, Any]]:
    found = ((owed["path"], case.recorded(f"artifacts/{owed['path']}")) for owed in case.owed_artifacts)
    return [{"path": path, "bytes": f["bytes"], "sha256": f["sha256"]} for path, f in found if f is not None]
