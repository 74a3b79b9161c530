"""Run one command on a pod."""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.launching import Launching, launching
from orchestrator.errors import InputError, PodError
from orchestrator.options import Ssh, WithCommand, takes
from orchestrator.tasks import command as command_task
from orchestrator.tasks import logs as logs_task
from orchestrator.tasks import request as request_task
from orchestrator.ui import Progress, Screen


@dataclass(frozen=True)
class Run(Ssh, Launching):
    commit: str


@click.command(
    cls=WithCommand,
    epilog=examples("nsa-pod run pi-4090 -- python -m nsa.sanity", "nsa-pod run --commit v1 -- make bench"),
)
@options.named_pod
@launching
@options.commit
@takes(Run)
def run(o: Run) -> int:
    """Run one command on a pod, without a verdict.

    It runs in the tree of a commit and the runbook's environment, and is recorded as any run. The exit code is the
    command's, 128 + N if signal N ended it, 4 if it did not come to an end of its own.
    """
    if not any(o.command[:1]):
        raise InputError("expected a command: nsa-pod run POD -- COMMAND...")
    claim = o.claim
    asked = replace(o.asked(o.commit), command=o.command)
    sinks: logs_task.Sinks = {} if o.as_json else {"stdout": Screen("stdout").write, "stderr": Screen("stderr").write}
    with Progress(o.verbosity) as progress:
        progress.busy(f"reading commit {o.commit} of {o.repo.absolute()}")
        request = request_task.find(asked)
        result = command_task.run(request, reach(o, progress), claim, sinks)
        progress.say(f"{result.summary}: {result.path}")
    if o.as_json:
        click.echo(result.to_json(), nl=False)
    elif result.error:
        raise PodError(result.error)
    return result.exit_code
