"""report.md: the seeds' reporting template, filled from evidence; each figure names the artifact it is from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.plan.plan import environment_record
from orchestrator.report import trouble
from orchestrator.report.markdown import failures, figures
from orchestrator.report.markdown.machine import where
from orchestrator.report.markdown.tables import table, without_empty
from orchestrator.results import Result, StageResult
from orchestrator.shared.plan import Plan, is_command
from orchestrator.text import listing, markdown, seconds


def render(result: Result, plan: Plan, directory: Path) -> str:
    """The report of the run in `directory`, as Markdown."""
    sections = [
        _heading(result, "command" if is_command(plan) else "comparison"),
        where(result, environment_record(plan), directory),
        _stages(result.stages, directory),
        failures.attention(result, directory),
        _sabotage(result.stages),
        failures.skips(result),
        _notes(result),
        _left_out(result),
        figures.figures(result, directory),
        figures.artifacts(result),
        failures.commands(result),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _heading(result: Result, kind: str) -> str:
    verdict = (result.verdict or kind).upper()
    lines = [f"# {verdict}: {markdown(result.runbook['name'])} on pod {markdown(result.pod)}"]
    lines.append(f"**{markdown(result.summary)}**")
    if result.error:
        lines.append(f"Error: {markdown(result.error)}")
    if result.state != "ended":
        lines.append(f"The run has not ended: it is {result.state}.")
    return "\n\n".join(lines)


def _stages(stages: Sequence[StageResult], directory: Path) -> str:
    rows = [
        (
            markdown(stage.name) + ("" if stage.required else " (optional)"),
            f"**{stage.status}**" if stage.status != "passed" else stage.status,
            seconds(stage.seconds),
            trouble.counts(stage) or "-",
            ", ".join(f"{markdown(op)}: {markdown(route)}" for op, route in stage.routes.items()) or "-",
            _executed(stage),
            markdown(stage.reason) or "-",
            failures.logs(stage, directory) or "-",
        )
        for stage in stages
    ]
    header = ("stage", "status", "time", "tests", "routes", "executed", "reason", "logs")
    return "## Stages\n\n" + without_empty(header, rows, keep=3)


def _executed(stage: StageResult) -> str:
    """What was seen to run, by device; other work on CUDA has no names."""
    seen = [
        f"{markdown(device)}: {of['launches']} launched ({markdown(listing(of['kernels']))})"
        for device, of in stage.executed.items()
    ]
    other = stage.used_cuda and not any(device.startswith("cuda") for device in stage.executed)
    return "; ".join([*seen, *(["cuda"] if other else [])]) or "-"


def _sabotage(stages: Sequence[StageResult]) -> str:
    """How many of the planted faults each stage's tests noticed, and which they did not."""
    rows = [
        (
            markdown(stage.name),
            f"{stage.kills['killed']} of {stage.kills['of']}",
            ", ".join(map(markdown, stage.kills["survivors"])) or "-",
        )
        for stage in stages
        if stage.kills
    ]
    return "## Planted faults\n\n" + table(("stage", "noticed by its tests", "not noticed"), rows) if rows else ""


def _notes(result: Result) -> str:
    lines = [f"- {markdown(stage.name)}: {markdown(note)}" for stage in result.stages for note in stage.notes]
    lines += [f"- refused from the pod: {markdown(sentence)}" for sentence in result.refused]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _left_out(result: Result) -> str:
    lines = [f"- {markdown(name)}: {markdown(reason)}" for name, reason in result.left_out_reasons.items()]
    return "## Not part of this run\n\n" + "\n".join(lines) if lines else ""
