"""What the agent's pytest plugin reported, folded into one outcome for each test."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Iterable

from orchestrator.verdict.raised import Told, as_told

_MAX_LINE_BYTES = 64 << 20


class Malformed(Exception):
    """Not what the plugin writes; the message is a clause that follows the file's name."""


@dataclass
class Test:
    """One test: `outcome` is passed, failed, error, skipped, xfailed, xpassed or unfinished; idle if it passed and no
    assertion of it ran, or one is missing.

    `id` is its `node_id`, or tells it apart from other tests that have that, too; it is what all else is told of.
    `skipped_subtests` holds their reasons; `routes` maps route.<op> to the values that were recorded, in order.
    `checks` counts the assertions and comparisons that ran and could fail, None where that is not known; `vacuous`
    says why not one of those that ran could. `compared` holds how many elements were compared within which tolerance,
    None where either is not known; `dtypes` the types of those that are floats.
    """

    id: str
    node_id: str
    outcome: str = "unfinished"
    reason: str = ""
    finished: bool = False
    skipped_subtests: list[str] = field(default_factory=list)
    routes: dict[str, list[str]] = field(default_factory=dict)
    checks: int | None = None
    vacuous: str = ""
    compared: list[tuple[float | None, float | None]] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)


@dataclass
class Session:
    """A session of pytest, or of another `runner` of tests in one process; `exit_status` is None until it has ended,
    `interrupted` says what stopped it half-way.

    `prefix` is what its ids begin with where its root is above the tree;
    `targets` are the files and directories in its arguments; `raised` holds what each test has raised, `told` how much
    of that was reported; `reruns` what those tests raised at last that were run again; `uncalled` tests whose reports
    are of no call; `ignored` files and directories of tests that were not even looked at; `not_collected` tests that
    stand in those that were; `lost` says which AssertionErrors were raised after the last test and seen by nobody;
    `stripped` says that the Python ran with -O, which leaves assertions out; `inside` is the test that started it,
    `outside` says that it has nothing to do with the tree, `bare` that it has none of the stage's
    environment variables, `only_collects` that it was asked for no more; `due` are the places of assertions in tests
    that passed, `reached` of those that ran.
    """

    started: bool = False
    runner: str = "pytest"
    prefix: str = ""
    inside: str | None = None
    outside: bool = False
    bare: bool = False
    only_collects: bool = False
    stripped: bool = False
    exit_status: int | None = None
    interrupted: str | None = None
    targets: list[str] = field(default_factory=list)
    collected: list[str] = field(default_factory=list)
    deselected: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    not_collected: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    selected: list[str] = field(default_factory=list)
    tests: dict[str, Test] = field(default_factory=dict)
    collect_errors: dict[str, str] = field(default_factory=dict)
    collect_skips: dict[str, str] = field(default_factory=dict)
    causes: dict[str, Told] = field(default_factory=dict)
    raised: dict[str, list[str]] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    reruns: dict[str, str] = field(default_factory=dict)
    uncalled: set[str] = field(default_factory=set)
    due: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)

    def with_outcome(self, *outcomes: str) -> list[Test]:
        return [test for test in self.tests.values() if test.outcome in outcomes]


def read(f: BinaryIO) -> Session:
    """Fold the plugin's lines in `f`; Malformed if one of them is not whole or not the plugin's."""
    session = Session()
    for number, line in enumerate(iter(lambda: f.readline(_MAX_LINE_BYTES), b""), start=1):
        try:
            event = json.loads(line)
            _HANDLERS[event["event"]](session, event)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            raise Malformed(f"has a line {number} that the plugin did not write") from e
    return session


def merged(sessions: Iterable[Session]) -> Session:
    """All that several sessions report, as one that has neither targets nor an end; a test that ran again is another.

    A test that has nothing to do with the tree proves nothing by passing.
    """
    whole = Session()
    for number, session in enumerate(sessions, start=1):
        bare = {id_: id_[len(session.prefix) :] if id_.startswith(session.prefix) else id_ for id_ in _ids_of(session)}
        again = f" (session {number})"
        names = {id_: name + (again if name in whole.collected else "") for id_, name in bare.items()}
        counted = [t for t in session.tests.values() if t.outcome != "passed" or not session.outside]
        whole.started = True
        whole.stripped |= session.stripped
        for name in ("collected", "deselected", "selected"):
            getattr(whole, name).extend(names[id_] for id_ in getattr(session, name))
        for name in ("ignored", "not_collected", "lost"):
            getattr(whole, name).extend(getattr(session, name))
        whole.tests.update((names[test.id], replace(test, id=names[test.id])) for test in counted)
        for of_id in ("collect_errors", "collect_skips", "causes", "raised", "told", "reruns"):
            getattr(whole, of_id).update((names[id_], value) for id_, value in getattr(session, of_id).items())
        whole.uncalled.update(names[id_] for id_ in session.uncalled)
        whole.due |= session.due
        whole.reached |= session.reached
    ran = set(whole.collected)  # in another process, where several share the tests
    whole.not_collected = [id_ for id_ in whole.not_collected if id_ not in ran]
    return whole


def _ids_of(session: Session) -> set[str]:
    by_id = (session.tests, session.collect_errors, session.collect_skips, session.raised, session.told, session.reruns)
    listed = (session.collected, session.deselected, session.selected, session.uncalled)
    return set().union(*by_id, *listed)


def _start(session: Session, event: dict[str, Any]) -> None:
    session.started = True
    session.runner = str(event.get("runner") or "pytest")
    session.stripped = bool(event.get("optimize"))
    session.inside = None if event.get("inside") is None else str(event["inside"])
    session.outside = bool(event.get("outside"))
    session.bare = bool(event.get("bare"))
    session.prefix = str(event.get("prefix") or "")
    session.only_collects = bool(event.get("only_collects"))
    session.targets.extend(str(target) for target in event.get("targets", ()))


def _end(session: Session, event: dict[str, Any]) -> None:
    session.exit_status = int(event["status"])


def _interrupted(session: Session, event: dict[str, Any]) -> None:
    session.interrupted = session.interrupted or str(event["reason"])


def _ids(session: Session, event: dict[str, Any]) -> None:
    getattr(session, event["event"]).extend(str(i) for i in event["ids"])


def _lost(session: Session, event: dict[str, Any]) -> None:
    session.lost.extend(str(reason) for reason in event["reasons"])


def _assertions(session: Session, event: dict[str, Any]) -> None:
    session.due.update(str(place) for place in event["due"])
    session.reached.update(str(place) for place in event["reached"])


def _collect_error(session: Session, event: dict[str, Any]) -> None:
    session.collect_errors[str(event["id"])] = str(event["reason"])
    _fold_cause(session, event)


def _collect_skip(session: Session, event: dict[str, Any]) -> None:
    session.collect_skips[str(event["id"])] = str(event["reason"])


def _phase(session: Session, event: dict[str, Any]) -> None:
    id_ = str(event["id"])
    test = session.tests.setdefault(id_, Test(id_, str(event.get("node_id", id_))))
    _fold_cause(session, event)
    _fold_raised(session, test.id, event)
    if event.get("subtest"):
        _fold_subtest(test, event)
        return
    if event["when"] == "setup" and test.finished:  # run again
        if test.outcome in ("failed", "error"):
            session.reruns[test.id] = test.reason
        test = session.tests[test.id] = Test(test.id, test.node_id)
    _fold_phase(test, event)
    if event["when"] == "call" and not event.get("called", True):
        session.uncalled.add(test.id)
    if event["when"] == "teardown":
        test.finished = True
        for name, value in event.get("routes", ()):
            test.routes.setdefault(str(name), []).append(str(value))
        _fold_checks(test, event.get("checks") or {})


def _fold_cause(session: Session, event: dict[str, Any]) -> None:
    """The first one of a test; runs of earlier versions tell none."""
    if "why" in event:
        session.causes.setdefault(str(event["id"]), as_told(event["why"]))


def _fold_checks(test: Test, checks: dict[str, Any]) -> None:
    """A test that passed has failed where an AssertionError was lost; runs of earlier versions say nothing of it."""
    if test.outcome == "passed" and checks.get("lost"):
        test.outcome, test.reason = "failed", str(checks["lost"][0])
    elif test.outcome == "passed" and checks.get("idle"):
        why, dropped = checks.get("why"), checks.get("dropped")
        test.outcome = "idle"
        test.reason = str(dropped) if dropped else f"no assertion of it ran{f': {why}' if why else ''}"
    elif "ran" in checks:
        test.checks, test.vacuous = int(checks["ran"]), str(checks.get("vacuous") or "")
        test.compared = [(_number(tolerance), _number(elements)) for tolerance, elements in checks.get("compared", ())]
        test.dtypes = [str(name) for name in checks.get("dtypes", ())]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _fold_raised(session: Session, id_: str, event: dict[str, Any]) -> None:
    raised = [str(name) for name in event.get("raised", ())]
    session.raised[id_] = max(session.raised.get(id_, []), raised, key=len)
    # "rerun" is how plugins that repeat a test report the failure that they do not count.
    if event["outcome"] == "rerun":
        session.reruns[id_] = raised[-1] if raised else "it was not said why"
    session.told[id_] = session.told.get(id_, 0) + (event["outcome"] in ("failed", "rerun") or "xfail" in event)


def _fold_phase(test: Test, event: dict[str, Any]) -> None:
    """The first phase that says more than 'passed so far' decides."""
    outcome = _outcome_of(event)
    if outcome is not None and (test.outcome == "unfinished" or outcome in ("failed", "error")):
        test.outcome = outcome
        test.reason = str(event.get("xfail") if outcome in ("xfailed", "xpassed") else event.get("reason", ""))


def _outcome_of(event: dict[str, Any]) -> str | None:
    outcome, when, expected_failure = event["outcome"], event["when"], "xfail" in event
    if outcome == "failed":
        return "error" if when in ("setup", "teardown") else "failed"  # of a process that crashed: neither
    if outcome == "skipped":
        return "xfailed" if expected_failure else "skipped"
    if outcome == "passed" and when == "call":
        return "xpassed" if expected_failure else "passed"
    return None


def _fold_subtest(test: Test, event: dict[str, Any]) -> None:
    outcome = _outcome_of(event)
    if outcome in ("failed", "error"):
        test.outcome, test.reason = "failed", str(event.get("reason", ""))
    elif outcome == "skipped":
        test.skipped_subtests.append(str(event.get("reason", "")))
    elif outcome in ("xfailed", "xpassed"):
        test.skipped_subtests.append(f"{outcome[:-2]}: {event.get('xfail')}")


_HANDLERS: dict[str, Callable[[Session, dict[str, Any]], None]] = {
    "start": _start,
    "end": _end,
    "interrupted": _interrupted,
    "collected": _ids,
    "deselected": _ids,
    "ignored": _ids,
    "not_collected": _ids,
    "assertions": _assertions,
    "lost": _lost,
    "selected": _ids,
    "scheduled": lambda session, event: None,  # what xdist hands out, before the workers say which tests they are
    "collect_error": _collect_error,
    "collect_skip": _collect_skip,
    "phase": _phase,
}
