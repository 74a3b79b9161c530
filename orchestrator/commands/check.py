"""Say what is wrong with an inventory and runbooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import completion, options
from orchestrator.commands import examples
from orchestrator.commands.output import show
from orchestrator.errors import InputError
from orchestrator.options import TEXT, takes
from orchestrator.tasks import check as check_task


@dataclass(frozen=True)
class Check:
    """Without a pod: as for any; without a runbook: all that the repository has."""

    pod: str | None
    inventory: str | None
    repo: Path
    as_json: bool
    commit: str
    runbook: str | None
    named: str | None


@click.command(epilog=examples("nsa-pod check", "nsa-pod check nightly --pod pi-4090"))
@options.any_pod
@options.inventory
@options.repo
@options.json
@click.option("--commit", type=TEXT, default="HEAD", metavar="REV", help="Whose paths are looked up [default: HEAD].")
@click.argument("named", metavar="[RUNBOOK]", type=TEXT, required=False)
@click.option("--runbook", type=TEXT, metavar="R", shell_complete=completion.runbooks, help="The same as RUNBOOK.")
@takes(Check)
def check(o: Check) -> int:
    """Say all that is wrong with pods.yaml and RUNBOOK (without it: the repository's own); contact nothing.

    Exit code 2 if anything is wrong.
    """
    if o.named and o.runbook:
        raise InputError(f"expected one runbook: {o.named!r} or --runbook {o.runbook}")
    found = check_task.check(check_task.What(o.repo, o.commit, o.named or o.runbook, o.pod, o.inventory))
    show(found, o.as_json, lambda held: f"nothing is wrong with {', '.join(held['files'])} on {held['commit'][:7]}")
    return 0
