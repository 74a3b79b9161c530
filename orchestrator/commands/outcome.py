"""The end of a verb that judged a run."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.commands.output import stdout
from orchestrator.report import screen
from orchestrator.results import Result


def show_result(result: Result, as_json: bool, top: Path) -> int:
    """Print it; the exit code."""
    if as_json:
        click.echo(result.to_json(), nl=False)
    else:
        screen.show(result, stdout(), top)
    return result.exit_code
