"""Show what the runs measured, over their commits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import completion as completions
from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.output import stdout, write
from orchestrator.errors import InputError
from orchestrator.options import NEW_FILE, TEXT, Kept, takes
from orchestrator.report import history as report_history
from orchestrator.report import html
from orchestrator.tasks import history as history_task
from orchestrator.tasks import runs as runs_task


@dataclass(frozen=True)
class History(Kept):
    """`rows` is a text that the names of the wanted rows hold."""

    as_json: bool
    html: bool
    output: Path | None
    pod: str | None
    device: str | None
    stage: str | None
    since: str | None
    runbook: str | None
    write: Path | None
    rows: str | None


@click.command(epilog=examples("nsa-pod history", "nsa-pod history S=4096 --stage decode_bench --html -o history.html"))
@options.repo
@options.artifacts
@options.json
@click.option("--html", is_flag=True, help="Print one page that needs nothing else.")
@click.option("--output", "-o", type=NEW_FILE, metavar="FILE", help="Write it there instead of to stdout.")
@options.pod_option("Only runs on this pod [default: on all of one kind].")
@click.option("--device", type=TEXT, metavar="GPU", help="On pods with this GPU, or CPU [default: the newest run's].")
@click.option("--stage", type=TEXT, metavar="S", help="Only rows of this stage.")
@click.option("--since", metavar="T", help="Only runs begun since a date (2026-11-20, UTC), or 7d, 12h, 90m ago.")
@click.option(
    "--runbook",
    type=TEXT,
    metavar="R",
    shell_complete=completions.runbooks,
    help="Recommend the thresholds that this runbook asks for.",
)
@click.option("--write", type=NEW_FILE, metavar="FILE", help="Write the recommended thresholds there, as YAML.")
@click.argument("rows", type=TEXT, required=False)
@takes(History)
def history(o: History) -> int:
    """Show what the runs kept here measured, over their commits: what changed, and where.

    ROWS is a text that the wanted rows hold, such as a column or S=4096.
    """
    if o.write and not o.runbook:
        raise InputError("--write needs --runbook: a runbook asks for thresholds")
    since = runs_task.since(o.since) if o.since else None
    wish = history_task.Wish(o.pod, o.device, o.stage, o.rows, since)
    found = history_task.history(o.kept_in, o.top, wish, o.runbook)
    if o.write:
        history_task.write_thresholds(found, o.write)
    if o.html:
        page = report_history.document(found.device, found.runs, found.trends, found.recommendations)
        write(html.render(page), o.output)
    elif o.as_json:
        write(
            json.dumps(report_history.told(found.trends, found.recommendations, found.device), indent=1) + "\n",
            o.output,
        )
    else:
        stdout().print(report_history.screen(found.trends, found.recommendations, found.others, found.device))
    return 0
