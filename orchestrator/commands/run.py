"""Run one command on a pod."""

from __future__ import annotations

from dataclasses import dataclass

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.errors import InputError, PodError
from orchestrator.launchers.claim import Claim
from orchestrator.options import Kept, Ssh, WithCommand, takes
from orchestrator.tasks import command as command_task
from orchestrator.tasks import logs as logs_task
from orchestrator.tasks import request as request_task
from orchestrator.ui import Progress, Screen


@dataclass(frozen=True)
class Run(Ssh, Kept):
    allow_different_gpu: bool
    commit: str
    runbook: str | None
    max_time: str | None
    max_cost: float | None
    wait: bool
    steal: bool


@click.command(
    cls=WithCommand,
    epilog=examples("nsa-pod run pi-4090 -- python -m nsa.sanity", "nsa-pod run --commit v1 -- make bench"),
)
@options.named_pod
@options.reaching
@options.repo
@options.artifacts
@options.gpu
@options.commit
@options.runbook
@options.limits
@options.claims
@takes(Run)
def run(o: Run) -> int:
    """Run one command on a pod, without a verdict.

    It runs in the tree of a commit and the runbook's environment, and is recorded as any run. The exit code is the
    command's, 128 + N if signal N ended it, 4 if it did not come to an end of its own.
    """
    if not o.command:
        raise InputError("expected a command: nsa-pod run POD -- COMMAND...")
    claim = Claim(o.wait, o.steal)
    limits = o.max_time, o.max_cost
    asked = request_task.Asked(lambda: o.the_pod, o.repo, o.commit, o.runbook, o.artifacts, *limits, command=o.command)
    sinks: logs_task.Sinks = {} if o.as_json else {"stdout": Screen("stdout").write, "stderr": Screen("stderr").write}
    with Progress(o.verbosity) as progress:
        progress.busy(f"reading commit {o.commit} of {o.repo.absolute()}")
        request = request_task.find(asked)
        result = command_task.run(request, reach(o, progress, o.allow_different_gpu), claim, sinks)
        progress.say(f"{result.summary}: {result.path}")
    if o.as_json:
        click.echo(result.to_json(), nl=False)
    elif result.error:
        raise PodError(result.error)
    return result.exit_code
