"""Log in to a pod."""

from __future__ import annotations

import os
from functools import partial

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.options import Ssh, WithCommand, takes
from orchestrator.tasks import ssh as ssh_task
from orchestrator.ui import Progress


@click.command(
    cls=WithCommand,
    epilog=examples("nsa-pod ssh pi-4090", "nsa-pod ssh pi-4090 -- nvidia-smi", "nsa-pod ssh -- -L 80:localhost:80"),
)
@options.named_pod
@options.pod
@options.inventory
@options.trust
@takes(partial(Ssh, as_json=False, quiet=False, verbose=False))
def ssh(o: Ssh) -> int:
    """Log in to a pod by your own ssh.

    It gets the pinned host key and the pod's settings; what follows `--` comes after the host.
    """
    with Progress(o.verbosity) as progress:
        command = ssh_task.command(reach(o, progress), o.command)
    os.execvp(command[0], command)
