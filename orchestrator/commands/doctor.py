"""Find out whether a pod can be used."""

from __future__ import annotations

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.output import show
from orchestrator.options import Reaching, takes
from orchestrator.report import terminal
from orchestrator.tasks import doctor as doctor_task
from orchestrator.ui import Progress


@click.command(epilog=examples("nsa-pod doctor --pod pi-4090"))
@options.reaching
@takes(Reaching)
def doctor(o: Reaching) -> int:
    """Find out whether a pod can be used, and what to do if not. Exit code 4 if it cannot."""
    with Progress(o.verbosity) as progress:
        checks = doctor_task.doctor(reach(o, progress))
    show([check.as_dict() for check in checks], o.as_json, terminal.findings)
    return 4 if any(check.level == "fail" for check in checks) else 0
