"""Bring a run home, or follow it there."""

from __future__ import annotations

from dataclasses import dataclass

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.outcome import show_result
from orchestrator.options import Kept, Reaching, takes
from orchestrator.tasks import follow as follow_task
from orchestrator.tasks.notice import Notice
from orchestrator.ui import Progress


@dataclass(frozen=True)
class Follow(Reaching, Kept):
    commit: str | None
    run: str | None
    notify: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Fetch(Follow):
    no_wait: bool


@click.command(epilog=examples("nsa-pod fetch --pod pi-4090", "nsa-pod fetch --pod pi-4090 --commit 4106f1b --no-wait"))
@options.reaching
@options.repo
@options.artifacts
@options.of_commit
@options.notify
@click.option("--no-wait", is_flag=True, help="Bring what is there now; do not wait for the run's end.")
@options.run
@takes(Fetch)
def fetch(o: Fetch) -> int:
    """Bring a run home and judge it: RUN, or the newest on the pod whose commit is in the repository."""
    return _follow(o, wait=not o.no_wait)


@click.command(epilog=examples("nsa-pod follow --pod pi-4090 20261121-101500-4106f1b-0a1b2c3d"))
@options.reaching
@options.repo
@options.artifacts
@options.of_commit
@options.notify
@options.run
@takes(Follow)
def follow(o: Follow) -> int:
    """Follow a run that is going on, to its end."""
    return _follow(o, wait=True)


def _follow(o: Follow, *, wait: bool) -> int:
    choice = follow_task.Choice(o.top, o.commit, o.run, o.kept_in, o.artifacts is not None)
    with Progress(o.verbosity) as progress, Notice(o.notify, progress) as notice:
        result = follow_task.follow(reach(o, progress), choice, wait=wait)
        notice.ended(result)
    return show_result(result, o.as_json, o.top)
