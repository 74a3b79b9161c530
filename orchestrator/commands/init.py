"""Write an inventory and a runbook that fit a repository."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.commands import examples
from orchestrator.options import FOLDER
from orchestrator.tasks import init as init_task


@click.command(epilog=examples("nsa-pod init"))
@click.argument("folder", type=FOLDER, default=".")
def init(folder: Path) -> int:
    """Look at the repository in FOLDER and write a pods.yaml and a runbook that fit; nothing that exists is touched."""
    done = init_task.init(folder)
    click.echo(f"found {done.found}", err=True)
    for path in done.kept:
        click.echo(f"kept {path}, which was there", err=True)
    for path in done.written:
        click.echo(path)
    if done.advice:
        click.echo(f"note: {done.advice}", err=True)
    if done.written:
        click.echo("next: read them, commit, then `nsa-pod check` and `nsa-pod validate --pod local`", err=True)
    return 0
