"""Remove from a pod what nobody needs."""

from __future__ import annotations

from dataclasses import dataclass

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.output import show
from orchestrator.options import TEXT, Reaching, takes
from orchestrator.plan.limits import age
from orchestrator.report import terminal
from orchestrator.tasks import prune as prune_task
from orchestrator.ui import Progress


@dataclass(frozen=True)
class Prune(Reaching):
    """`keep` in runs."""

    keep: int | None
    older_than: str | None
    dry_run: bool


@click.command(epilog=examples("nsa-pod prune --pod pi-4090 --keep 5", "nsa-pod prune --pod pi-4090 --older-than 7d"))
@options.reaching
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the N newest runs and what they need.")
@click.option("--older-than", type=TEXT, metavar="T", help="Keep what was used in the last 7d, 12h, ...")
@click.option("--dry-run", is_flag=True, help="Say what would be removed; remove nothing.")
@takes(Prune)
def prune(o: Prune) -> int:
    """Remove runs, trees, environments, caches and leftovers from a pod; never what is in use, or waited for.

    With both limits, what either keeps stays; with neither, what fits under the pod's max_disk. Leftovers always go.
    """
    wish = prune_task.Wish(o.keep, None if o.older_than is None else age(o.older_than, "--older-than: "))
    with Progress(o.verbosity) as progress:
        pruned = prune_task.prune(reach(o, progress), wish, dry_run=o.dry_run)
    show(pruned, o.as_json, terminal.pruned)
    return 0
