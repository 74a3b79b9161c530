"""What did not pass, with its causes; what was skipped; what ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.report import trouble
from orchestrator.report.document import (
    Block,
    Lines,
    Link,
    Paragraph,
    Section,
    Strong,
    Subheading,
    bullets,
    joined,
    section,
)
from orchestrator.report.trouble import Trouble
from orchestrator.results import Result, StageResult
from orchestrator.text import count


def attention(result: Result, directory: Path) -> Section | None:
    """The stages that did not pass: why, and where their output is; which were blocked, and by whom."""
    parts = [block for what in trouble.troubles(result) for block in _stage(what, directory)]
    return section("What did not pass", bullets([*trouble.common(result), *trouble.did_not_run(result)]), *parts)


def skips(result: Result) -> Section | None:
    """What passed stages did not simply run, by why."""
    lines = (
        f"{stage.name}: {sentence}"
        for stage in result.stages
        if stage.status == "passed"
        for sentence in trouble.skipped(stage)
    )
    return section("Skipped in stages that passed", bullets(lines))


def commands(result: Result) -> Section | None:
    """The command line and the variables of each stage."""
    if not any(stage.command for stage in result.stages):
        return None
    same = trouble.common_variables(result.stages)
    lines = ["# in all stages", *trouble.assignments(same), ""] if same else []
    for stage in result.stages:
        lines += [f"# {stage.name}", *trouble.command(stage, same), ""]
    return section("Commands", Lines(tuple(lines[:-1])))


def logs(stage: StageResult, directory: Path) -> list[Link]:
    """Links to its streams, those that are here."""
    files = ((stream, f"stages/{stage.name}/{stream}") for stream in ("stdout", "stderr"))
    return [Link(stream, file) for stream, file in files if (directory / file).is_file()]


def _stage(what: Trouble, directory: Path) -> Iterator[Block]:
    stage = what.stage
    here = logs(stage, directory)
    yield Subheading(stage.name)
    linked = (" (", *joined(here), ")") if here else ()
    yield Paragraph((Strong(stage.name), f" is {stage.status}: {stage.reason}", *linked))
    for item in what.items:
        yield Paragraph(item.title)
        yield Lines(tuple(item.lines))
    more = [f"{count(what.many, 'more failure')} in its stdout"] if what.many else []
    remarks = bullets([*more, *what.remarks])
    if remarks:
        yield remarks
    for output in what.outputs:
        yield Paragraph(f"The end of its {output.stream}:")
        yield Lines(tuple(output.lines))
    yield Paragraph("What ran:")
    yield Lines(tuple(trouble.command(stage)))
