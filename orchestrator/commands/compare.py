"""Say which of two commits is faster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import completion as completions
from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.launching import Launching, launching
from orchestrator.commands.output import show, write
from orchestrator.errors import PodError
from orchestrator.options import TEXT, takes
from orchestrator.report import comparison, html, pages
from orchestrator.tasks import compare as compare_task
from orchestrator.tasks import compare_kept as kept_task
from orchestrator.ui import Progress


@dataclass(frozen=True)
class Compare(Launching):
    """`a` and `b` are commits, or runs that are kept."""

    a: str
    b: str
    stage: tuple[str, ...]
    blocks: int
    threshold: str
    harness: str
    fail_on: str | None
    page: Path | None


@click.command(
    epilog=examples("nsa-pod compare main HEAD --pod pi-4090", "nsa-pod compare v1 HEAD --fail-on slower:3%")
)
@launching
@options.timed
@options.blocks
@click.option("--threshold", default="1%", metavar="P", help="From which part on a row is different [default: 1%].")
@options.harness
@click.option("--fail-on", type=TEXT, metavar="slower:P", help="Exit code 1 if a row is so much slower, 3 if unsure.")
@options.page
@click.argument("a", type=TEXT, shell_complete=completions.commits)
@click.argument("b", type=TEXT, shell_complete=completions.commits)
@takes(Compare)
def compare(o: Compare) -> int:
    """Say which of the commits A and B is faster, and how sure: both built, tested and timed in turn in one run.

    With two runs that are kept here (run ids or directories) it says what differs, and calls nothing faster.
    """
    limit = compare_task.limit_of(o.fail_on) if o.fail_on else None
    runs = kept_task.two_runs(o.kept_in, o.top, o.a, o.b)
    if runs:
        told = comparison.document_of_runs(kept_task.compare(*runs))
        if o.page:
            write(html.render(pages.of_runs(told)), o.page)
        show(told, o.as_json, comparison.page_of_runs)
        return 3 if limit else 0
    threshold = compare_task.part_of(o.threshold, "--threshold")
    what = compare_task.What(o.asked(o.a), o.b, o.stage, o.blocks, threshold, compare_task.harness_of(o.harness))
    with Progress(o.verbosity) as progress:
        progress.busy(f"reading commits {o.a} and {o.b} of {o.repo.absolute()}")
        pair = compare_task.find(what)
        made = compare_task.compare(pair, reach(o, progress), o.claim)
    if made.result.error:
        raise PodError(made.result.error)
    if o.page:
        write(html.render(pages.of_comparison(made.document)), o.page)
    show(made.document, o.as_json, comparison.page)
    return made.exit_code(limit)
