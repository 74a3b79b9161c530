"""Stop a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.output import show
from orchestrator.options import Reaching, takes
from orchestrator.report import terminal
from orchestrator.tasks import cancel as cancel_task
from orchestrator.ui import Progress


@dataclass(frozen=True)
class Cancel(Reaching):
    repo: Path
    run: str | None


@click.command(
    epilog=examples("nsa-pod cancel --pod pi-4090", "nsa-pod cancel --pod pi-4090 20261121-101500-4106f1b-0a1b2c3d")
)
@options.reaching
@options.repo
@options.run
@takes(Cancel)
def cancel(o: Cancel) -> int:
    """Stop a run; what has run until then is kept. Without RUN: the one that holds the pod, if it is yours."""
    with Progress(o.verbosity) as progress:
        stopped = cancel_task.cancel(reach(o, progress), o.run, o.repo)
    show({"cancelled": stopped}, o.as_json, terminal.facts)
    return 0
