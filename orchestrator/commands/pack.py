"""Put a run into one file, and take it out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.outcome import show_result
from orchestrator.options import FILE, NEW_FILE, Kept, takes
from orchestrator.store.run_directory import find as find_run
from orchestrator.tasks import pack as pack_task


@dataclass(frozen=True)
class Pack(Kept):
    run: str | None
    output: Path | None


@dataclass(frozen=True)
class Open(Kept):
    as_json: bool
    file: Path


@click.command(epilog=examples("nsa-pod pack", "nsa-pod pack 20261121-101500 --output for-alice.zip"))
@options.repo
@options.artifacts
@click.option("--output", "-o", type=NEW_FILE, metavar="FILE", help="[default: the run id in the current directory].")
@options.run
@takes(Pack)
def pack(o: Pack) -> int:
    """Put a run with all of its evidence into one file, for a colleague to `open`: RUN, or the latest."""
    click.echo(pack_task.pack(find_run(o.kept_in, o.top, o.run), o.output))
    return 0


@click.command("open", epilog=examples("nsa-pod open 20261121-101500-4106f1b-0a1b2c3d.nsa-pod.zip"))
@options.repo
@options.artifacts
@options.json
@click.argument("file", type=FILE)
@takes(Open)
def open_(o: Open) -> int:
    """Check a packed run file by file, keep it with the others, and judge it again from its evidence."""
    return show_result(pack_task.open_(o.file, o.kept_in, o.top), o.as_json, o.top)
