"""List runs."""

from __future__ import annotations

from dataclasses import dataclass

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.output import show
from orchestrator.git.repository import Repository
from orchestrator.options import Kept, Reaching, takes
from orchestrator.report import terminal
from orchestrator.tasks import runs as runs_task
from orchestrator.ui import Progress
from orchestrator.verdict.status import OUTCOMES


@dataclass(frozen=True)
class Runs(Reaching, Kept):
    """Without a pod, or with `here`: the runs that are kept here."""

    commit: str | None
    verdict: tuple[str, ...]
    since: str | None
    here: bool


@click.command(epilog=examples("nsa-pod runs --verdict failed --since 7d", "nsa-pod runs --pod pi-4090"))
@options.reaching
@options.repo
@options.artifacts
@options.of_commit
@click.option("--verdict", type=click.Choice(list(OUTCOMES)), multiple=True, help="Only with this verdict; may repeat.")
@click.option("--since", metavar="T", help="Only begun since a date (2026-11-20, UTC), or 7d, 12h, 90m ago.")
@click.option("--here", is_flag=True, help="With --pod: only those kept here; contact nothing.")
@takes(Runs)
def runs(o: Runs) -> int:
    """List the runs kept here, or with --pod those on the pod too. Verdicts are as they were settled."""
    commit = Repository.open(o.repo).revision(o.commit).commit if o.commit else None
    wanted = runs_task.Filter(o.pod, commit, o.verdict, runs_task.since(o.since) if o.since else None)
    if o.pod is None or o.here:
        show(runs_task.kept_here(o.kept_in, o.top, wanted), o.as_json, terminal.runs)
        return 0
    with Progress(o.verbosity) as progress:
        found = runs_task.on_pod(reach(o, progress), o.kept_in, o.top, wanted)
    show(found, o.as_json, terminal.runs)
    return 0
