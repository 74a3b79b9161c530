"""Set up a pod's environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.contact import reach
from orchestrator.commands.output import show
from orchestrator.errors import InputError
from orchestrator.options import FOLDER, MOST, NEW_FOLDER, TEXT, Amount, Reaching, takes
from orchestrator.report import terminal
from orchestrator.tasks import bootstrap as bootstrap_task
from orchestrator.tasks import environments as environments_task
from orchestrator.tasks import request as request_task
from orchestrator.tasks import wheelhouse as wheelhouse_task
from orchestrator.ui import Progress


@dataclass(frozen=True)
class Bootstrap(Reaching):
    """`build_limit` in minutes."""

    repo: Path
    runbook: str | None
    explain: bool
    fresh: bool
    wheelhouse: Path | None
    offline: bool
    download_wheelhouse: Path | None
    allow_source_build: bool
    build_limit: float


@click.command(epilog=examples("nsa-pod bootstrap --pod pi-4090", "nsa-pod bootstrap --pod pi-4090 --explain"))
@options.reaching
@options.repo
@options.gpu
@click.option("--runbook", type=TEXT, metavar="R", help="Whose packages are installed [default: the pod's runbook].")
@click.option("--explain", is_flag=True, help="Say which environment fits, and why others do not; install nothing.")
@click.option("--fresh", is_flag=True, help="Resolve the packages anew instead of keeping the last lock.")
@click.option("--wheelhouse", type=FOLDER, help="Carry this directory of wheels to the pod and ask no network there.")
@click.option("--offline", is_flag=True, help="Ask no network on the pod: use what lies there, or the --wheelhouse.")
@click.option(
    "--download-wheelhouse",
    type=NEW_FOLDER,
    help="Fill this directory here with the wheels for the pod; install nothing.",
)
@click.option("--allow-source-build", is_flag=True, help="Compile flash-attn on the pod where it has no wheel.")
@click.option(
    "--build-limit",
    type=Amount(min=0, min_open=True, max=MOST),
    default=bootstrap_task.SOURCE_BUILD_S / 60,
    metavar="MINUTES",
    help="End a compilation that takes longer [default: 120].",
)
@takes(Bootstrap)
def bootstrap(o: Bootstrap) -> int:
    """Set up a pod's environment: paired torch, triton and flash-attn, verified and reused."""
    if o.explain and o.download_wheelhouse:
        raise InputError("expected --explain or --download-wheelhouse, not both")
    needs = request_task.needs_of(o.the_pod, o.repo, o.runbook)
    how = bootstrap_task.Options(
        fresh=o.fresh,
        wheelhouse=o.wheelhouse,
        offline=o.offline,
        source_build=o.allow_source_build,
        source_build_s=o.build_limit * 60,
    )
    with Progress(o.verbosity) as progress:
        session = reach(o, progress)
        found: Mapping[str, object]
        if o.explain:
            found = environments_task.reasons(session, needs.spec, how)
        elif o.download_wheelhouse:
            found = wheelhouse_task.download(session, needs.spec, o.download_wheelhouse, needs.installations)
        else:
            found = environments_task.set_up(session, needs, how)
    show(found, o.as_json, terminal.facts)
    return 0
