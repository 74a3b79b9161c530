"""List a pod's environments."""

from __future__ import annotations

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.output import show
from orchestrator.options import Reaching, takes
from orchestrator.report import terminal
from orchestrator.tasks import environments as environments_task
from orchestrator.ui import Progress


@click.command(epilog=examples("nsa-pod envs --pod pi-4090"))
@options.reaching
@takes(Reaching)
def envs(o: Reaching) -> int:
    """List the environments on a pod, the last used first."""
    with Progress(o.verbosity) as progress:
        found = environments_task.on_pod(reach(o, progress))
    show(found, o.as_json, terminal.environments)
    return 0
