"""A result on a terminal: what ran, what did not pass and why, the verdict. Lines break between words, never inside."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestrator.report import trouble
from orchestrator.report.trouble import Trouble
from orchestrator.results import Result, StageResult
from orchestrator.text import count, indented, plain, seconds
from orchestrator.ui import coloured
from orchestrator.verdict.status import OUTCOMES

_NARROWEST = 40
_LONGEST = 1000
_MOST_NOTES = 8
_STEP = "  "


def show(result: Result, console: Console, top: Path = Path()) -> None:
    """The stages, why some did not pass, the verdict line, and where the report is: from here, where the repository's
    `top` is elsewhere.
    """
    console.print(_stages(result.stages))
    common = trouble.common_variables(result.stages)
    for what in trouble.troubles(result):
        _show_trouble(what, console)
        _show(_as_typed(trouble.command(what.stage, common)), console, _STEP)
    same = [f"in all stages: {' '.join(trouble.assignments(common))}"] if common and trouble.troubles(result) else []
    told = [*trouble.did_not_run(result), *trouble.common(result), *same, *_notes(result)]
    if told:
        console.print()
    for line in told:
        _wrap(line, console, "")
    console.print()
    if result.error:
        console.print(f"[red]error:[/] {escape(plain(result.error))}", soft_wrap=True)
    colour = OUTCOMES[result.verdict].colour if result.verdict else "default"
    console.print(f"[bold {colour}]{escape(plain(result.summary))}[/]", soft_wrap=True)
    path = result.path if os.path.isabs(result.path) else os.path.relpath(top / result.path)
    console.print(f"report: {escape(path)}/report.md", soft_wrap=True)


def _notes(result: Result) -> list[str]:
    """What it has not that the last passed run had, for nothing else on a terminal tells of it."""
    more = len(result.notes) - _MOST_NOTES
    return [*result.notes[:_MOST_NOTES], *([f"and {count(more, 'more note')}: see the report"] if more > 0 else [])]


def _stages(stages: Iterable[StageResult]) -> Table:
    shown = Table("stage", "status", "time", "tests", box=None, pad_edge=False, header_style="bold")
    for stage in stages:
        name = stage.name if stage.required else f"{stage.name} (optional)"
        shown.add_row(escape(plain(name)), coloured(stage.status), seconds(stage.seconds), trouble.counts(stage))
    return shown


def _show_trouble(what: Trouble, console: Console) -> None:
    stage = what.stage
    console.print()
    by_tests = stage.causes and stage.status == "failed"  # whose first failure is all that the reason names
    why = trouble.counts(stage) if by_tests else stage.reason
    _wrap(f"{stage.name} {stage.status}: {why}", console, "", "bold")
    for item in what.items:
        _wrap(item.title, console, _STEP)
        _show(item.lines, console, 2 * _STEP)
    more = [f"and {count(what.many, 'more failure')}: see its stdout"] if what.many else []
    for line in (*more, *what.remarks):
        _wrap(line, console, _STEP)
    for output in what.outputs:
        _wrap(f"the end of its {output.stream}:", console, _STEP)
        _show(output.lines, console, 2 * _STEP)


def _as_typed(command: Sequence[str]) -> list[str]:
    """Behind a prompt."""
    return [f"{'' if n else '$ '}{line}" for n, line in enumerate(command)]


def _show(lines: Iterable[str], console: Console, indent: str) -> None:
    """Lines of code or output as they are: the terminal may break them where it must."""
    for line in lines:
        console.print(Text(indent + indented(line), style="dim"), soft_wrap=True)


def _wrap(line: str, console: Console, indent: str, style: str = "") -> None:
    wrapper = textwrap.TextWrapper(
        max(console.width, _NARROWEST),
        initial_indent=indent,
        subsequent_indent=indent + 2 * _STEP,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for part in wrapper.wrap(plain(line, _LONGEST)):
        console.print(Text(part, style=style), soft_wrap=True)
