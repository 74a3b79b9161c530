"""What a verb says, on stdout or in the file that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType

from orchestrator.files import write_atomically

_PIPE_WIDTH = 240


def show(value: Any, as_json: bool, render: Callable[[Any], RenderableType]) -> None:
    if as_json:
        click.echo(json.dumps(value, indent=1))
    else:
        stdout().print(render(value), crop=False)


def write(text: str, output: Path | None) -> None:
    if output:
        write_atomically(output, text)
    else:
        click.echo(text, nl=False)


def stdout() -> Console:
    """Wide where nobody looks: a file or a pipe has no width to wrap at."""
    console = Console(highlight=False, emoji=False)
    return console if console.is_terminal else Console(highlight=False, emoji=False, width=_PIPE_WIDTH)
