"""Log in to a pod."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
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
        session = reach(o, progress)
        command = ssh_task.command(session, o.command)
    code = _ended(command)
    with Progress(o.verbosity) as session.progress:
        ssh_task.look_again(session, code)
    return code


def _ended(command: Sequence[str]) -> int:
    """The exit code of a command that has the terminal, also where it suspends itself alone, as ssh does at `~^Z`."""
    child = subprocess.Popen(command)
    try:
        while os.WIFSTOPPED(status := os.waitpid(child.pid, os.WUNTRACED)[1]):
            os.kill(os.getpid(), signal.SIGSTOP)
    except KeyboardInterrupt:
        child.terminate()
        raise
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
