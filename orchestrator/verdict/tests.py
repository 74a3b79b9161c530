"""Tests: what may be asked of a pytest session, and what its report and the agent's own plugin say of it."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Dict, Iterator, List, NamedTuple, NewType, Optional, Tuple, TypedDict

from orchestrator.shared.schema import RULES
from orchestrator.shared.text import count, plain, wrong_expression
from orchestrator.verdict import failures as found_failures
from orchestrator.verdict import junit, outcomes

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

_MOST_LISTED = 1000
_MOST_GROUPS = 50
_MOST_PLACES = 20
_UNSEEN = {"not collected": "written, but not collected", "ignored": "ignored by pytest"}
"""Of what pytest itself never saw as a test: the words that a reason begins with, and what they are called."""
_NOT_FOUND = re.compile(r"ERROR: (?:file or directory )?not found: (.+)")

Pattern = NewType("Pattern", str)
Least = NewType("Least", int)


class Asked(TypedDict, total=False):
    """`allow_skips` are patterns of reasons, `must_pass` patterns of test ids; `checked` refuses passes that check
    nothing.
    """

    min_passed: Least
    allow_skips: List[Pattern]
    must_pass: List[Pattern]
    checked: bool


class Shortfall(NamedTuple):
    """Something that is not a pass: a test (or module) with its outcome, why, and whether the runbook allows it."""

    id: str
    outcome: str
    reason: str
    allowed: bool


class NotPassed(TypedDict):
    """A shortfall, or a failure, in the result."""

    id: str
    outcome: str
    reason: str
    allowed: bool


class Skips(TypedDict):
    """Shortfalls of one outcome and reason: how many there are, and the first of them."""

    outcome: str
    reason: str
    allowed: bool
    count: int
    first: str


class Vacuous(TypedDict):
    """A passed test of whose checks none could fail, and why the first one could not."""

    id: str
    reason: str


class NeverRan(TypedDict):
    """Assertions that stand in tests that passed and ran in none: how many, and the file and line of the first."""

    count: int
    first: List[str]


class Summary(TypedDict, total=False):
    """How many tests were collected, what became of them, and what did not simply pass. Empty without a session.

    As a bare pytest counts, but for `not_collected` of those deselected, which it does not know. Of those that passed
    `unasserted` hold assertions of which none ran, and `unchecked` have checked nothing; `never_ran` are assertions
    that stand beside others which did.
    """

    collected: int
    passed: int
    failed: int
    errors: int
    skipped: int
    xfailed: int
    xpassed: int
    rerun: int
    deselected: int
    unasserted: int
    not_collected: int
    allowed_skips: int
    not_passed: List[NotPassed]
    unchecked: int
    vacuous: List[Vacuous]
    never_ran: NeverRan


def asked(case: Case) -> Asked:
    """What is asked of the tests; a pytest stage that does not say owes one pass."""
    return case.expect.get("tests") or {}


RULES[Pattern] = wrong_expression
RULES[Least] = lambda number: None if number >= 1 else "expected a whole number above 0"


def shortfalls(session: outcomes.Session, allow: List[Pattern]) -> list[Shortfall]:
    """Every skip, xfail, XPASS, deselection and pass without an assertion of a session, each allowed or not by the
    patterns `allow`.
    """
    found = [(t.id, "skipped", t.reason) for t in session.with_outcome("skipped")]
    found += [(id_, "skipped", reason) for id_, reason in session.collect_skips.items()]
    found += [(t.id, "skipped", reason) for t in session.tests.values() for reason in t.skipped_subtests]
    found += [(t.id, "unasserted", t.reason) for t in session.with_outcome("idle")]
    found += [(t.id, "xfailed", f"xfail: {t.reason}") for t in session.with_outcome("xfailed")]
    found += [(t.id, "xpassed", f"xpass: {t.reason}") for t in session.with_outcome("xpassed")]
    found += [(id_, "rerun", f"rerun: {raised}") for id_, raised in session.reruns.items()]
    found += [(id_, "deselected", f"deselected: {id_}") for id_ in session.deselected]
    found += [(path, "deselected", f"ignored: {path}") for path in dict.fromkeys(session.ignored)]
    found += [(id_, "deselected", f"not collected: {id_}") for id_ in session.not_collected]
    return [Shortfall(*item, any(re.search(pattern, item[2]) for pattern in allow)) for item in found]


def _all_shortfalls(case: Case) -> list[Shortfall]:
    """Those of the stage's own sessions, and what did not pass in those that a test started: nobody else looks."""
    allow = asked(case).get("allow_skips") or []
    inner = [
        Shortfall(id_, "inner", reason, any(re.search(pattern, reason) for pattern in allow))
        for session in case.sessions.inner
        for id_, what in _wrong_inside(session)
        for reason in [f"inside {session.inside or 'a hook'}: {what}"]
    ]
    return [*shortfalls(case.session, allow), *inner]


def _wrong_inside(session: outcomes.Session) -> Iterator[tuple[str, str]]:
    """What keeps a session that a test started from having simply passed, by test."""
    for test in session.with_outcome("failed", "error", "skipped"):
        yield test.id, f"{test.id} {test.outcome}: {test.reason}"
    for id_, reason in session.collect_errors.items():
        yield id_, f"{id_} could not be collected: {reason}"
    if session.interrupted is not None or session.exit_status is None:
        yield "", f"it did not finish its session{f': {session.interrupted}' if session.interrupted else ''}"


def summary(case: Case) -> Summary:
    """Counts of outcomes, and what did not simply pass; empty if no session was seen."""
    session = case.session
    if not session.started:
        return {}
    listed = _all_shortfalls(case)
    short = Counter(s.outcome for s in listed)
    counts = Summary(
        collected=len(session.collected),
        passed=len(session.with_outcome("passed", "idle")),
        failed=len(session.with_outcome("failed")),
        errors=len(session.with_outcome("error")) + len(session.collect_errors),
        skipped=short["skipped"],
        xfailed=short["xfailed"],
        xpassed=short["xpassed"],
        rerun=short["rerun"],
        deselected=short["deselected"],
        unasserted=short["unasserted"],
        not_collected=len(session.not_collected) + len(set(session.ignored)),
        allowed_skips=sum(s.allowed for s in listed),
        not_passed=[
            NotPassed(id=plain(s.id), outcome=s.outcome, reason=plain(s.reason), allowed=s.allowed)
            for s in listed[:_MOST_LISTED]
        ],
    )
    if any(test.checks is not None for test in session.tests.values()):
        counts["unchecked"] = len(_unchecked(session))
        counts["vacuous"] = [
            Vacuous(id=plain(t.id), reason=plain(t.vacuous))
            for t in session.with_outcome("passed")[:_MOST_LISTED]
            if t.vacuous
        ]
        never = sorted(session.due - session.reached, key=_by_line)
        counts["never_ran"] = NeverRan(count=len(never), first=[plain(place) for place in never[:_MOST_PLACES]])
    return counts


def _by_line(place: str) -> Tuple[str, int]:
    file, _, line = place.partition(" (")[0].rpartition(":")
    return file, int(line) if line.isdecimal() else 0


def skips(case: Case) -> List[Skips]:
    """What did not simply pass, by why, the most frequent first."""
    if not case.session.started:
        return []
    groups: Dict[Tuple[str, str, bool], List[Shortfall]] = {}
    for short in _all_shortfalls(case):
        groups.setdefault((short.outcome, _why(short), short.allowed), []).append(short)
    by_size = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [
        Skips(outcome=outcome, reason=plain(why), allowed=allowed, count=len(members), first=plain(members[0].id))
        for (outcome, why, allowed), members in by_size[:_MOST_GROUPS]
    ]


def _why(short: Shortfall) -> str:
    """Its reason; of a deselection, which says no more than the id, how it came about, if not by name."""
    return _UNSEEN.get(short.reason.partition(":")[0], "") if short.outcome == "deselected" else short.reason


def _unchecked(session: outcomes.Session) -> list[outcomes.Test]:
    return [t for t in session.with_outcome("passed") if t.checks == 0 and not t.vacuous]


def _function(test: outcomes.Test) -> str:
    """The id of a test without its parameters."""
    return test.id.partition("[")[0]


def unchecked(case: Case) -> Iterator[Optional[str]]:
    """The first test that passed and checked nothing that could fail, where the runbook wants none of these."""
    if asked(case).get("checked"):
        passed = case.session.with_outcome("passed")
        checked = {_function(t) for t in passed if t.checks}
        # Beside others of the same function, one of a size of nothing is an edge that is tested.
        idle = [t for t in passed if t.checks == 0 and not (t.vacuous.startswith("empty") and _function(t) in checked)]
        more = f" (and {count(len(idle) - 1, 'other test')})" if len(idle) > 1 else ""
        for test in idle[:1]:
            yield f"{test.id} passed and checked nothing{test.vacuous and ': ' + test.vacuous}{more}"


def failures(case: Case) -> Optional[str]:
    """The first failure that pytest reports."""
    found = found_failures.summary(case.session)
    if found:
        return found
    return next((f"after the last test {reason}" for reason in case.session.lost), None)


def failures_in_junit(case: Case) -> Optional[str]:
    """How many its JUnit file holds."""
    wrong = [c for c in case.sessions.junit if c.outcome in ("failed", "error")]
    return f"junit.xml holds {count(len(wrong), 'failure')}" if wrong else None


def collected_nothing(case: Case) -> Optional[str]:
    session = case.session
    if not session.started or session.selected or session.tests or session.collect_errors or not case.stage["pytest"]:
        return None
    if case.evidence["exit_code"] not in (4, 5):  # usage error (a file or test that is not there), no tests
        return None
    if session.collect_skips:
        id_, reason = next(iter(session.collect_skips.items()))
        return f"pytest collected nothing: {id_} skipped itself: {reason}"
    if session.deselected:
        return f"pytest collected nothing: all {count(len(session.deselected), 'test')} deselected"
    said = next(filter(None, map(_NOT_FOUND.match, reversed(case.ends["stderr"].splitlines()))), None)
    why = said and said[1].rpartition(f"/{case.run.directory.name}/tree/")
    return f"pytest collected nothing{': not found: ' + plain(why[2]) if why else ''}"


def too_few(case: Case) -> Optional[str]:
    """Skips, deselections and the like that are not allowed; files without a test; too few passes."""
    if not case.stage["pytest"] and not case.session.started and case.expect.get("tests") is None:
        return None
    wanted = asked(case)
    if not case.session.started and _only_allows_skips(case):
        return None
    refused = [s for s in _all_shortfalls(case) if not s.allowed]
    if refused:
        first = refused[0]
        same = count(sum(s.outcome == first.outcome for s in refused), "test")
        others = count(sum(s.outcome != first.outcome for s in refused), "other shortfall")
        more = "" if others.startswith("0") else f"; {others}"
        if first.outcome == "inner":
            return f"a pytest that a test started did not simply pass: {first.reason}{more}"
        why = _why(first)
        return f"{same} {first.outcome}{why and f': {why}'} ({first.id}){more}"
    empty = _named_in_vain(case.session)
    if empty:
        return f"no test was collected in {empty}"
    passed = case.session.with_outcome("passed")
    least = wanted.get("min_passed") or 1
    if len(passed) < least:
        idle = len(case.session.with_outcome("idle"))
        more = f" (and {idle} without an assertion that ran)" if idle else ""
        return f"{count(len(passed), 'test')} passed{more}, expected at least {least}"
    for pattern in wanted.get("must_pass") or ():
        if not any(re.search(pattern, test.id) for test in passed):
            return f"no test that matches {pattern!r} passed"
    return None


def _only_allows_skips(case: Case) -> bool:
    """Of a runner whose closing lines are all that is seen of it, where an artifact is what is owed."""
    wanted = {key for key, value in asked(case).items() if value}
    return not case.stage["pytest"] and wanted == {"allow_skips"} and bool(case.expect.get("artifacts"))


def _named_in_vain(session: outcomes.Session) -> Optional[str]:
    """The first file or directory in pytest's arguments of which no test was even collected."""
    ids = [*session.collected, *session.collect_skips, *session.collect_errors]
    for path in (os.path.normpath(target.partition("::")[0]) for target in session.targets):
        inside = re.compile(re.escape(path) + r"(/|::|$)")
        if path != "." and not os.path.isabs(path) and not any(map(inside.match, ids)):
            return path
    return None


def doubts(case: Case) -> Iterator[Optional[str]]:
    """What makes the reports of a session untrustworthy."""
    yield case.sessions.wrong
    for session in case.sessions.own:
        yield _unfinished(session, case.evidence["exit_code"] if case.stage["pytest"] else session.exit_status)
        yield _hidden_failure(session)
    if case.stage["pytest"]:
        yield case.sessions.junit_wrong
        yield _disagreement(case)


def _unfinished(session: outcomes.Session, exit_code: Optional[int]) -> Optional[str]:
    """What shows that the session did not run to its end as it says, or ended otherwise than its process."""
    if not session.started:
        return "the agent's pytest plugin was never started"
    if session.interrupted is not None:
        return f"pytest was stopped half-way: {session.interrupted}"
    if session.exit_status is None:
        return f"{session.runner} did not finish its session"
    if session.exit_status != exit_code:
        return f"pytest finished with {session.exit_status}, its process with {exit_code}"
    if Counter(session.collected) != Counter(session.selected) + Counter(session.deselected):
        total, selected, left = len(session.collected), len(session.selected), len(session.deselected)
        return f"{count(total, 'test')} collected, but {selected} selected and {left} deselected"
    ran = {test.id for test in session.tests.values() if test.finished and test.outcome != "unfinished"}
    if Counter(session.selected) != Counter(ran):
        return f"{count(len(session.selected), 'test')} selected, but {len(ran)} run to the end"
    return None


def _hidden_failure(session: outcomes.Session) -> Optional[str]:
    """What shows that a failure was reported as something else, or could not happen."""
    for id_, raised in session.raised.items():
        if len(raised) > session.told[id_]:
            return f"{id_} raised {raised[0]}, but was reported {_reported(session.tests[id_])}"
    for test in session.with_outcome("passed", "idle", "xpassed"):
        if test.id in session.uncalled:
            return f"{test.id} was reported {_reported(test)}, but was never called"
    if session.bare:
        return f"{session.runner} ran without the stage's environment variables, as under env -i"
    return "Python ran with -O, which leaves assertions out" if session.stripped else None


def _reported(test: outcomes.Test) -> str:
    """What pytest says of it."""
    return "passed" if test.outcome == "idle" else test.outcome


def _disagreement(case: Case) -> Optional[str]:
    """The first test of which junit.xml says something else than the agent's plugin."""
    written = Counter((c.key, c.outcome, repr(c.routes)) for c in case.sessions.junit)
    tests = case.session.tests
    keys = {id_: junit.case_key(test.node_id) for id_, test in tests.items()}
    names = {**{key: id_ for id_, key in keys.items()}, **{junit.case_key(i): i for i in case.session.collect_skips}}
    seen = Counter((keys[t.id], _outcome_in_junit(t), repr(t.routes)) for t in tests.values())
    seen.update((junit.case_key(id_), "skipped", "{}") for id_ in case.session.collect_skips)
    for key, outcome, taken in seen - written:
        return f"the agent's plugin saw {names[key]} {outcome} with routes {taken}, junit.xml does not say so"
    # Plugins that run tests again report a failure that they do not count as any.
    again = {keys[id_] for id_ in case.session.reruns if id_ in keys}
    for key, outcome, taken in (each for each in written - seen if each[0] not in again):
        return f"junit.xml says {outcome} of {key} with routes {taken}, the agent's plugin does not"
    return None


def _outcome_in_junit(test: outcomes.Test) -> str:
    return "passed" if test.outcome in ("passed", "idle", "xpassed") and not test.skipped_subtests else "skipped"
