"""What did not pass, with its causes; what was skipped; what ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.report import trouble
from orchestrator.report.markdown.tables import code, link
from orchestrator.report.trouble import Trouble
from orchestrator.results import Result, StageResult
from orchestrator.text import count, markdown


def attention(result: Result, directory: Path) -> str:
    """The stages that did not pass: why, and where their output is; which were blocked, and by whom."""
    sentences = [*trouble.common(result), *trouble.did_not_run(result)]
    parts = ["\n".join(f"- {markdown(sentence)}" for sentence in sentences)] if sentences else []
    for what in trouble.troubles(result):
        parts += _stage(what, directory)
    return "\n\n".join(["## What did not pass", *parts]) if parts else ""


def skips(result: Result) -> str:
    """What passed stages did not simply run, by why."""
    lines = [
        f"- {markdown(stage.name)}: {markdown(sentence)}"
        for stage in result.stages
        if stage.status == "passed"
        for sentence in trouble.skipped(stage)
    ]
    return "## Skipped in stages that passed\n\n" + "\n".join(lines) if lines else ""


def commands(result: Result) -> str:
    """The command line and the variables of each stage."""
    same = trouble.common_variables(result.stages)
    lines = ["# in all stages", *trouble.assignments(same), ""] if same else []
    for stage in result.stages:
        lines += [f"# {stage.name}", *trouble.command(stage, same), ""]
    return f"## Commands\n\n{code(lines[:-1])}" if any(stage.command for stage in result.stages) else ""


def logs(stage: StageResult, directory: Path) -> str:
    """Links to its streams, those that are here."""
    files = ((stream, f"stages/{stage.name}/{stream}") for stream in ("stdout", "stderr"))
    return ", ".join(link(stream, file) for stream, file in files if (directory / file).is_file())


def _stage(what: Trouble, directory: Path) -> Iterator[str]:
    stage = what.stage
    here = logs(stage, directory)
    yield f"### {markdown(stage.name)}"
    yield f"**{markdown(stage.name)}** is {stage.status}: {markdown(stage.reason)}" + (f" ({here})" if here else "")
    for item in what.items:
        yield f"{markdown(item.title)}"
        yield code(item.lines)
    more = [f"{count(what.many, 'more failure')} in its stdout"] if what.many else []
    if what.remarks or more:
        yield "\n".join(f"- {markdown(sentence)}" for sentence in (*more, *what.remarks))
    for output in what.outputs:
        yield f"The end of its {output.stream}:"
        yield code(output.lines)
    yield "What ran:"
    yield code(trouble.command(stage))
