"""report: a judged run in the form that was asked for."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from orchestrator.report import github, html, junit, markdown, screen
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

    def document(self) -> Document:
        return with_text(document(self.result, self.plan, self.directory), self.hidden.text)


def written(told: Told, form: str) -> str:
    """The run in one of `FORMS`."""
    return _FORMS[form](told)


def page(told: Told) -> str:
    """As HTML, whose links lead from the file that it is written to, else from here, to the run's files."""
    base = os.path.relpath(told.directory, (told.output or Path("x")).absolute().parent)
    return html.render(told.document(), "" if base == "." else told.hidden.text(base))


def _text(told: Told) -> str:
    out = io.StringIO()
    screen.show(told.result, Console(file=out, width=_WIDTH, highlight=False))
    return out.getvalue()


def _comment(told: Told) -> str:
    mark = github.marker("report", str(told.result.runbook.get("name")), "on", told.result.pod)
    return github.comment(told.document(), mark)


_FORMS: Mapping[str, Callable[[Told], str]] = {
    "text": _text,
    "json": lambda told: told.result.to_json(),
    "markdown": lambda told: markdown.render(told.document()),
    "html": page,
    "github": _comment,
    "annotations": lambda told: github.annotations(told.result),
    "junit": lambda told: told.hidden.text(junit.render(told.result, told.plan, told.directory)),
}
FORMS = tuple(_FORMS)
