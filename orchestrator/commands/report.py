"""Judge a run again, and show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.output import stdout, write
from orchestrator.errors import InputError
from orchestrator.options import NEW_FILE, Inventoried, Kept, takes
from orchestrator.report import hosts
from orchestrator.store.run_directory import find as find_run
from orchestrator.tasks import report as report_task


@dataclass(frozen=True, kw_only=True)
class Report(Kept, Inventoried):
    as_json: bool
    markdown: bool
    html: bool
    form: str | None
    output: Path | None
    redact_hosts: bool
    run: str | None

    @property
    def chosen(self) -> str:
        """The one form that was asked for."""
        given = (("markdown", self.markdown), ("html", self.html), (self.form, self.form), ("json", self.as_json))
        forms = list(dict.fromkeys(str(name) for name, is_given in given if is_given))
        if len(forms) > 1:
            raise InputError(f"expected {' or '.join(f'--{name}' for name in forms)}, not both")
        return next(iter(forms), "text")


@click.command(epilog=examples("nsa-pod report", "nsa-pod report 20261121-101500 --html --output run.html"))
@options.repo
@options.artifacts
@options.json
@options.inventory
@click.option("--markdown", is_flag=True, help="Print report.md instead of the table: --format markdown.")
@click.option("--html", is_flag=True, help="Print one page that needs nothing else: --format html.")
@click.option("--format", "form", type=click.Choice(report_task.FORMS), help="How it is printed [default: text].")
@click.option("--output", "-o", type=NEW_FILE, metavar="FILE", help="Write it there instead of to stdout.")
@click.option("--redact-hosts", is_flag=True, help="Leave out hosts, addresses, users, ports, homes: to be shared.")
@options.run
@takes(Report)
def report(o: Report) -> int:
    """Judge a run again from its evidence: RUN (a run id or a directory), or the latest."""
    form = o.chosen
    found = find_run(o.kept_in, o.top, o.run)
    hidden = hosts.known_to(found.path, o.the_inventory.pods.values()) if o.redact_hosts else hosts.Hosts(active=False)
    result = hidden.result(found.rejudge())
    told = report_task.Told(result, found.plan(), found.path, hidden, o.output)
    if form == "text" and not o.output:
        report_task.show(told, stdout(), o.top)
    else:
        write(report_task.written(told, form), o.output)
    return result.exit_code
