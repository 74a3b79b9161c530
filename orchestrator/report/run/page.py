"""The report: the seeds' reporting template, filled from evidence; each figure names the artifact it is from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import figures
from orchestrator.plan.plan import environment_record
from orchestrator.report import comparison, pages, trouble
from orchestrator.report.document import (
    Badge,
    Block,
    Document,
    Inline,
    Paragraph,
    Section,
    Strong,
    Table,
    bullets,
    joined,
    section,
    without_empty,
)
from orchestrator.report.run import artifacts, failures, measured
from orchestrator.report.run.machine import where
from orchestrator.report.run.telemetry import telemetry
from orchestrator.results import Result, StageResult
from orchestrator.shared.plan import Plan
from orchestrator.text import count, listing, seconds


def document(result: Result, plan: Plan, directory: Path) -> Document:
    """The report of the run in `directory`."""
    compared = pages.of_run(result, plan, directory) if "comparison" in plan else None
    sections = [
        section("Where and when", where(result, environment_record(plan), directory)),
        _stages(result.stages, plan, directory),
        failures.attention(result, directory),
        _sabotage(result.stages),
        failures.skips(result),
        _notes(result),
        _left_out(result),
        *_figures(result, plan, directory, compared),
        telemetry(result.stages, directory),
        artifacts.files(result),
        failures.commands(result),
    ]
    title = f"{(result.verdict or _kind(plan)).upper()}: {result.runbook.get('name')} on pod {result.pod}"
    lead = tuple(block for block in _lead(result, compared) if block is not None)
    return Document(title, result.verdict, lead, tuple(filter(None, sections)))


def _kind(plan: Plan) -> str:
    """Of a run that nobody judges as a whole."""
    return "comparison" if "comparison" in plan else "command"


def _figures(
    result: Result, plan: Plan, directory: Path, compared: comparison.Document | None
) -> Iterator[Section | None]:
    """What its stages measured; of a comparison, what that says of the two commits."""
    if compared:
        yield pages.rows(compared)
        return
    yield artifacts.tables(result, directory)
    yield measured.figures(result, figures.of_run(directory, plan, result.statuses))


def _lead(result: Result, compared: comparison.Document | None) -> Iterator[Block | None]:
    """The verdict, what it does not cover, and in a line for each stage why it is not a better one."""
    yield Paragraph(Strong(result.summary))
    if result.error:
        yield Paragraph(f"Error: {result.error}")
    if result.state != "ended":
        yield Paragraph(f"The run has not ended: it is {result.state}.")
    if compared:
        yield Paragraph(comparison.summary(compared))
        yield pages.called(compared)
    yield bullets(trouble.why(result))


def _stages(stages: Sequence[StageResult], plan: Plan, directory: Path) -> Section | None:
    """Of a comparison, without the many runs of its benches that are in order."""
    trials = {stage["name"] for stage in plan["stages"] if "trial" in stage}
    shown = [stage for stage in stages if stage.name not in trials or stage.status != "passed"]
    left = count(len(stages) - len(shown), "run") + " of benches passed" if len(shown) < len(stages) else ""
    rows: list[tuple[Inline, ...]] = [
        (
            stage.name + ("" if stage.required else " (optional)"),
            Badge(stage.status),
            seconds(stage.seconds),
            trouble.counts(stage) or "-",
            joined(f"{op}: {route}" for op, route in stage.routes.items()) or "-",
            _executed(stage),
            _kills(stage),
            stage.reason or "-",
            joined(failures.logs(stage, directory)) or "-",
        )
        for stage in shown
    ]
    header = ("stage", "status", "time", "tests", "routes", "executed", "planted faults", "reason", "logs")
    return section("Stages", without_empty(header, rows, keep=3), Paragraph(f"{left}.") if left else None)


def _executed(stage: StageResult) -> Inline:
    """What was seen to run, by device; other work on CUDA has no names."""
    seen = [f"{device}: {of['launches']} launched ({listing(of['kernels'])})" for device, of in stage.executed.items()]
    other = stage.used_cuda and not any(device.startswith("cuda") for device in stage.executed)
    return joined([*seen, *(["cuda"] if other else [])], "; ") or "-"


def _kills(stage: StageResult) -> str:
    return f"{stage.kills['killed']} of {stage.kills['of']} noticed" if stage.kills else "-"


def _sabotage(stages: Sequence[StageResult]) -> Section | None:
    """Which of the planted faults the stages' tests did not notice."""
    rows = [(stage.name, why) for stage in stages for why in stage.kills.get("why", ())]
    return section("Planted faults that no test noticed", Table(("stage", "why"), tuple(rows)) if rows else None)


def _notes(result: Result) -> Section | None:
    told: dict[str, list[str]] = {}
    for stage in result.stages:
        for note in (*stage.doubts, *stage.notes):
            told.setdefault(note, []).append(stage.name)
    lines = [f"{', '.join(names)}: {note}" for note, names in told.items()]
    refused = (f"refused from the pod: {sentence}" for sentence in result.refused)
    return section("Notes", bullets([*result.notes, *lines, *_untried(result.stages), *refused]))


def _untried(stages: Sequence[StageResult]) -> Iterator[str]:
    names = [
        stage.name for stage in stages if stage.tests.get("passed") and stage.status == "passed" and not stage.kills
    ]
    if names:
        yield f"whether the tests of {listing(names)} can fail is not known: no planted fault was tried (`kills`)"


def _left_out(result: Result) -> Section | None:
    lines = (f"{name}: {reason}" for name, reason in result.left_out_reasons.items())
    return section("Not part of this run", bullets(lines))
