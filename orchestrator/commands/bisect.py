"""Find the commit that made a stage fail, or slower."""

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
from orchestrator.options import TEXT, takes
from orchestrator.report import bisection, html, pages
from orchestrator.tasks import bisect as bisect_task
from orchestrator.tasks import compare as compare_task
from orchestrator.ui import Progress
from orchestrator.verdict.status import OUTCOMES


@dataclass(frozen=True)
class Bisect(Launching):
    good: str
    bad: str
    stage: str
    slower: str | None
    page: Path | None
    blocks: int


@click.command(epilog=examples("nsa-pod bisect v1 HEAD --stage tests", "nsa-pod bisect v1 HEAD --stage b --slower 5%"))
@launching
@click.option("--stage", type=TEXT, metavar="S", required=True, help="The stage that tells good from bad.")
@options.page
@click.option("--slower", metavar="P", help="Bad is what is so much slower, such as 5% [default: what does not pass].")
@options.blocks
@click.argument("good", type=TEXT, shell_complete=completions.commits)
@click.argument("bad", type=TEXT, shell_complete=completions.commits)
@takes(Bisect)
def bisect(o: Bisect) -> int:
    """Find the commit after GOOD, up to BAD, that made a stage fail, or slower.

    A commit that cannot be told is tried with more blocks, then passed over. Exit code 3 if none is left alone.
    """
    slower = compare_task.part_of(o.slower, "--slower") if o.slower else None
    what = bisect_task.What(o.asked(o.good), o.bad, o.stage, slower, o.blocks)
    with Progress(o.verbosity) as progress:
        progress.busy(f"reading commits {o.good} to {o.bad} of {o.repo.absolute()}")
        found = bisect_task.bisect(what, reach(o, progress), o.claim)
    if o.page:
        write(html.render(pages.of_bisection(found)), o.page)
    show(found, o.as_json, bisection.page)
    return OUTCOMES["passed" if found["first_bad"] else "incomplete"].exit_code
