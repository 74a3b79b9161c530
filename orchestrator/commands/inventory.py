"""List the inventory, and answer for it."""

from __future__ import annotations

from dataclasses import dataclass

import click

from orchestrator import options
from orchestrator.commands import examples
from orchestrator.commands.output import show
from orchestrator.options import Inventoried, takes
from orchestrator.report import terminal
from orchestrator.store import trusted


@dataclass(frozen=True, kw_only=True)
class Pods(Inventoried):
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class Trust(Pods):
    revoke: bool


@click.command(epilog=examples("nsa-pod pods"))
@options.inventory
@options.json
@takes(Pods)
def pods(o: Pods) -> int:
    """List the inventory."""
    found = o.the_inventory.pods.values()
    show([pod.model_dump(exclude_none=True, exclude={"env"}) for pod in found], o.as_json, terminal.pods)
    return 0


@click.command(epilog=examples("nsa-pod trust", "nsa-pod trust --inventory ../pods.yaml --revoke"))
@options.inventory
@options.json
@click.option("--revoke", is_flag=True, help="Take it back: no pod of the file is contacted any more.")
@takes(Trust)
def trust(o: Trust) -> int:
    """Answer for a pods.yaml that was found in a directory, as its content is now: its pods may be contacted.

    What was not trusted contacts nothing. A file named by --inventory or $NSA_POD_INVENTORY needs no trust, nor does a
    `local` pod that sets no python, env or workdir.
    """
    found, path = o.the_inventory, str(o.the_inventory.path)
    if o.revoke:
        said = f"{path} is not trusted any more" if trusted.revoke(found) else f"{path} was not trusted"
    else:
        trusted.trust(found)
        said = f"{path} is trusted as it is now"
    answer = {"inventory": path, "sha256": found.sha256, "trusted": not o.revoke, "demands": trusted.demands(found)}
    show(answer, o.as_json, lambda a: "\n".join([said, *([] if o.revoke else a["demands"])]))
    return 0
