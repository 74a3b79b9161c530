"""Run a runbook on a pod, or go on with a run of one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.launching import Launching, launching
from orchestrator.commands.outcome import show_result
from orchestrator.commands.output import stdout
from orchestrator.errors import InputError
from orchestrator.options import takes
from orchestrator.plan.plan import to_json
from orchestrator.report import preview
from orchestrator.tasks import request as request_task
from orchestrator.tasks import resume as resume_task
from orchestrator.tasks import validate as validate_task
from orchestrator.tasks.notice import Notice
from orchestrator.ui import Progress
from orchestrator.verdict.status import OUTCOMES


@dataclass(frozen=True)
class Validate(Launching):
    """`resume` is the run to go on with: empty for the newest, None for a new run."""

    commit: str
    resume: str | None
    no_sabotage: bool
    dry_run: bool
    notify: tuple[tuple[str, ...], ...]


@click.command(
    epilog=examples("nsa-pod validate --pod pi-4090 --commit 4106f1b", "nsa-pod validate --pod local --dry-run")
)
@launching
@options.commit
@options.notify
@click.option("--resume", metavar="[RUN]", is_flag=False, flag_value="", help="Go on with a run whose agent died.")
@click.option("--no-sabotage", is_flag=True, help="Do not run tests again with wrong code (kills, mutants).")
@click.option("--dry-run", is_flag=True, help="Say what would run, as the inventory promises it; contact nothing.")
@takes(Validate)
def validate(o: Validate) -> int:
    """Run a runbook on a pod, on exactly one commit, and judge what really ran."""
    claim = o.claim
    if o.resume is not None and (o.max_time is not None or o.max_cost is not None or o.no_sabotage or o.dry_run):
        given = "--max-time, --max-cost, --no-sabotage or --dry-run"
        raise InputError(f"--resume goes on with the run's own plan: expected no {given}")
    asked = replace(o.asked(o.commit), sabotage=not o.no_sabotage)
    with Progress(o.verbosity) as progress, Notice(o.notify, progress) as notice:
        progress.busy(f"reading commit {o.commit} of {o.repo.absolute()}")
        request = request_task.find(asked)
        pod = request.pod
        progress.say(f"runbook {request.runbook.name} on commit {request.revision.commit[:7]}, pod {pod.name}")
        if o.dry_run:
            return _preview(request, progress, o.as_json)
        session = reach(o, progress)
        if o.resume is None:
            result = validate_task.validate(request, session, claim)
        else:
            result = resume_task.resume(request, session, claim, o.resume)
        notice.ended(result)
    return show_result(result, o.as_json, o.top)


def _preview(request: request_task.Request, progress: Progress, as_json: bool) -> int:
    request.warn(progress)
    plan = request.preview()
    expected = validate_task.expected(plan)
    if as_json:
        progress.say(expected)
        click.echo(to_json(plan), nl=False)
    else:
        stdout().print(preview.page(plan, request.pod, request.runbook.environment, expected))
    wrong = request.findings or any(stage["blocked"] for stage in plan["stages"])
    return OUTCOMES["incomplete" if wrong else "passed"].exit_code
