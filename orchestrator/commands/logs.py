"""Print what a stage wrote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import click

from orchestrator import completion as completions
from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.options import TEXT, Kept, Reaching, takes
from orchestrator.tasks import logs as logs_task
from orchestrator.ui import Progress, Screen


@dataclass(frozen=True)
class Logs(Reaching, Kept):
    run: str
    stage: str
    stderr: bool
    follow: bool


@click.command(epilog=examples("nsa-pod logs latest tests", "nsa-pod logs 20261121-1015 train --stderr --follow"))
@options.pod
@options.inventory
@options.trust
@options.loudness
@options.repo
@options.artifacts
@click.option("--stderr", is_flag=True, help="Its stderr instead of its stdout.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the stage has ended.")
@click.argument("run", type=TEXT, shell_complete=completions.runs)
@click.argument("stage", type=TEXT, shell_complete=completions.stages)
@takes(partial(Logs, as_json=False))
def logs(o: Logs) -> int:
    """Print what a stage wrote, or has until now.

    RUN is a run id or its beginning, a directory, or `latest`. What has not come home is asked of the pod.
    """
    wanted = logs_task.Wanted(o.run, o.stage, "stderr" if o.stderr else "stdout", o.follow)
    out = Screen("stdout").write
    here = logs_task.run_here(o.kept_in, o.top, o.run)
    if here and logs_task.show_here(here, wanted, out):
        return 0
    if here:
        plan = here.plan()
        wanted, o = replace(wanted, run=plan["run_id"]), replace(o, pod=o.pod or plan["pod"])
    with Progress(o.verbosity) as progress:
        logs_task.show(reach(o, progress), wanted, out)
    return 0
