"""report: a judged run in the form that was asked for."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console

from orchestrator.report import comparison, github, html, junit, markdown, pages, screen
from orchestrator.report.document import Document, with_text
from orchestrator.report.hosts import Hosts
from orchestrator.report.run import document
from orchestrator.results import Result
from orchestrator.shared.plan import Plan

_WIDTH = 120


@dataclass(frozen=True)
class Told:
    """What is to be written: a judged run, its plan and directory, what to hide, and to which file, if to any."""

    result: Result
    plan: Plan
    directory: Path
    hidden: Hosts
    output: Path | None = None

    @cached_property
    def comparison(self) -> comparison.Document | None:
        """What it says of two commits, if it compared them."""
        if "comparison" not in self.plan:
            return None
        found: comparison.Document = self.hidden.clean(pages.of_run(self.result, self.plan, self.directory))
        return found

    def document(self) -> Document:
        return with_text(document(self.result, self.plan, self.directory), self.hidden.text)


def show(told: Told, console: Console, top: Path = Path()) -> None:
    """On a terminal: the stages, or of a comparison its rows."""
    if told.comparison:
        console.print(comparison.page(told.comparison))
    else:
        screen.show(told.result, console, top)


def written(told: Told, form: str) -> str:
    """The run in one of `FORMS`."""
    return _FORMS[form](told)


def _json(told: Told) -> str:
    return json.dumps(told.comparison, indent=1) + "\n" if told.comparison else told.result.to_json()


def page(told: Told) -> str:
    """As HTML, whose links lead from the file that it is written to, else from here, to the run's files."""
    base = os.path.relpath(told.directory, (told.output or Path("x")).absolute().parent)
    return html.render(told.document(), "" if base == "." else told.hidden.text(base))


def _text(told: Told) -> str:
    out = io.StringIO()
    show(told, Console(file=out, width=_WIDTH, highlight=False, emoji=False))
    return out.getvalue()


def _annotations(told: Told) -> str:
    said = comparison.summary(told.comparison) if told.comparison else told.result.summary
    return github.annotations(told.result, told.result.error or said)


def _comment(told: Told) -> str:
    kind = "comparison" if told.comparison else "report"
    mark = github.marker(kind, str(told.result.runbook.get("name")), "on", told.result.pod)
    return github.comment(told.document(), mark)


_FORMS: Mapping[str, Callable[[Told], str]] = {
    "text": _text,
    "json": _json,
    "markdown": lambda told: markdown.render(told.document()),
    "html": page,
    "github": _comment,
    "annotations": _annotations,
    "junit": lambda told: told.hidden.text(junit.render(told.result, told.plan, told.directory)),
}
FORMS = tuple(_FORMS)
