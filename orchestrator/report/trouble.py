"""What did not pass, and why, as every report says it: in which words, how much of it, in which order."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.results import Result, StageResult
from orchestrator.text import count, indented, listing, plain
from orchestrator.verdict.failures import Cause, Failure, wants_gpu
from orchestrator.verdict.raised import placed, sentence
from orchestrator.verdict.tests import Skips

_COUNTED = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "rerun", "deselected", "unasserted")
_NAMED = 4
_KILLED = "SIGKILL comes from a person, or from the kernel where memory has run out"
_NO_GPU = "no GPU is there: a stage with `when: [cuda]` is left out on such a pod, and the verdict line says so"
_OUTCOMES = {"failed": "", "error": " had an error", "not collected": " could not be collected"}
_PASSIVE = ("blocked", "not_run")


@dataclass(frozen=True)
class Item:
    """A failure, or several with one cause: `lines` are code, and what it said."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Output:
    """The last lines of a stream of a stage."""

    stream: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Trouble:
    """A stage that ran and did not pass: why, which tests, how `many` more; what else is to be known."""

    stage: StageResult
    items: Sequence[Item]
    many: int
    remarks: Sequence[str]
    outputs: Sequence[Output]


def troubles(result: Result) -> list[Trouble]:
    """Of the stages that ran and did not pass."""
    return [_trouble(stage) for stage in result.stages if stage.status not in ("passed", *_PASSIVE)]


def why(result: Result) -> Iterator[str]:
    """Why the verdict is not a better one: a sentence for each stage that ran and did not pass, and for the others."""
    for stage in (what.stage for what in troubles(result)):
        yield f"{stage.name} {stage.status.replace('_', ' ')}: {stage.reason}"
    yield from did_not_run(result)


def common(result: Result) -> Iterator[str]:
    """What is behind the failures of several stages, as sentences."""
    for cause in result.causes:
        if len(set(cause["stages"])) > 1:
            stages = listing(dict.fromkeys(cause["stages"]), 10)
            yield f"{cause['cause']}: the cause of {count(cause['count'], 'failure')}, in {stages}"


def did_not_run(result: Result) -> Iterator[str]:
    """Which stages were blocked, and by whom; which were not reached. One sentence for each reason."""
    groups: dict[str, list[str]] = {}
    for stage in (stage for stage in result.stages if stage.status in _PASSIVE):
        groups.setdefault(_why(stage, result.statuses), []).append(stage.name)
    for why, names in groups.items():
        yield f"{listing(names, 20)} {why}"


def skipped(stage: StageResult) -> list[str]:
    """Its tests that were not simply run, by why."""
    return [_skips(group) for group in stage.skips]


def counts(stage: StageResult) -> str:
    """'3 passed, 1 failed': how many of its tests had each outcome, those of none left out."""
    found = [(name, stage.tests.get(name)) for name in _COUNTED]
    return ", ".join(f"{n} {'error' if (n, name) == (1, 'errors') else name}" for name, n in found if n)


def command(stage: StageResult, but: Mapping[str, str] | None = None) -> list[str]:
    """What ran, as lines for a shell, with its variables; without those in `but`."""
    words = assignments({name: value for name, value in stage.env.items() if name not in (but or {})})
    return [indented(line) for line in " ".join([*words, shlex.join(stage.command)]).splitlines()]


def assignments(variables: Mapping[str, str]) -> list[str]:
    """As a shell has them."""
    return [f"{name}={shlex.quote(value)}" for name, value in variables.items()]


def common_variables(stages: Sequence[StageResult]) -> dict[str, str]:
    """Those that all stages have, with the same value."""
    if len(stages) < 2:
        return {}
    first, *others = [stage.env for stage in stages]
    return {name: value for name, value in first.items() if all(env.get(name) == value for env in others)}


def _why(stage: StageResult, statuses: Mapping[str, str]) -> str:
    if stage.status == "blocked" and stage.blocked_by:
        return f"blocked by {stage.blocked_by}, which is {statuses.get(stage.blocked_by, 'not part of this run')}"
    return f"{stage.status.replace('_', ' ')}: {plain(stage.reason)}"


def _trouble(stage: StageResult) -> Trouble:
    by_id = {failure["id"]: failure for failure in stage.failures}
    items = [_item(cause, by_id) for cause in stage.causes]
    numbers = (stage.tests.get("failed", 0), stage.tests.get("errors", 0))
    more = sum(n for n in numbers if isinstance(n, int)) - sum(cause["count"] for cause in stage.causes)
    if stage.raised and (stage.raised["place"] is None or placed(stage.raised["place"]) not in stage.reason):
        items.append(Item(sentence(stage.raised), _code(stage.raised["place"], stage.raised["line"])))
    faults = [why for why in stage.kills.get("why", ()) if not stage.reason.startswith(why)]
    remarks = [*_hints(stage), *faults, *stage.doubts, *skipped(stage)]
    return Trouble(stage, items, max(0, more), remarks, _outputs(stage))


def _item(cause: Cause, by_id: Mapping[str, Failure]) -> Item:
    failure = by_id.get(cause["of"][0]) if cause["count"] == 1 else None
    if failure is None:
        of = f"the cause of {cause['count']}: {listing(cause['of'], _NAMED)}"
        return Item(sentence(cause), [*_code(cause["place"], cause["line"]), *cause["error"][1:], of])
    lines = _code(failure["place"], failure["line"])
    if failure["called_from"]:
        lines.append(f"called from {failure['called_from']}")
    return Item(failure["id"] + _OUTCOMES.get(failure["outcome"], ""), [*lines, *failure["error"]])


def _hints(stage: StageResult) -> list[str]:
    killed = [_KILLED] if stage.status == "crashed" and "SIGKILL" in stage.reason else []
    raised = [*stage.causes, *([stage.raised] if stage.raised else [])]
    return killed + ([_NO_GPU] if any(map(wants_gpu, raised)) else [])


def _code(place: str | None, line: str) -> list[str]:
    return [f"{place}: {line}" if line else place] if place else []


def _skips(group: Skips) -> str:
    reason = f": {group['reason']}" if group["reason"] else ""
    which = group["first"] if group["count"] == 1 else f"{group['first']} and {group['count'] - 1} more"
    return f"{group['count']} {group['outcome']}{' (allowed)' if group['allowed'] else ''}{reason} ({which})"


def _outputs(stage: StageResult) -> list[Output]:
    """What a program printed last, where no test tells why: on stderr, unless only stdout tells of its end."""
    if stage.causes or (stage.exit_code == 0 and stage.status in ("failed", "invalid", "skipped")):
        return []
    streams = [Output("stderr", stage.stderr_tail), Output("stdout", stage.stdout_tail)]
    printed = [output for output in streams if output.lines]
    if stage.status in ("timed_out", "stalled"):
        return printed
    error = stage.raised["error"][0] if stage.raised and stage.raised["error"] else ""
    return [*(output for output in printed if error in map(plain, output.lines)), *printed][:1]
