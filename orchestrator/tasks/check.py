"""All that can be known of pods.yaml and runbooks before a pod is contacted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict

from orchestrator.config.inventory import LOCAL, Inventory, Pod, load_inventory
from orchestrator.config.runbook import locate_runbook, own_runbooks
from orchestrator.errors import InputError, Together
from orchestrator.git.repository import Repository
from orchestrator.pairing.choose import require_environment
from orchestrator.pairing.table import table
from orchestrator.tasks.request import Asked, default_runbook, find


class Checked(TypedDict):
    """The files that nothing is wrong with, and the commit that the runbooks were held against."""

    files: list[str]
    commit: str


@dataclass(frozen=True)
class What:
    """A runbook, or without one those that the repository has; as for one `pod`, or as for any."""

    repo: Path
    commit: str
    runbook: str | None = None
    pod: str | None = None
    inventory: str | None = None


def check(what: What) -> Checked:
    """What was found to be right; InputErrors says all that is wrong."""
    steps = Together()
    repo = steps.attempt(lambda: Repository.open(what.repo))
    root = repo.root if repo else what.repo
    inventory = steps.attempt(lambda: load_inventory(what.inventory))
    if inventory:
        steps.attempt(partial(_hold_inventory, inventory, root))
    pod = steps.attempt(partial(inventory.pod, what.pod)) if inventory and what.pod else _any_pod()
    names = steps.attempt(partial(_runbooks, what.runbook, pod, root, named=what.pod is not None)) or []
    found = [steps.attempt(partial(_hold_runbook, what, name, pod or _any_pod())) for name in names]
    steps.finish()
    files = [str(inventory.path)] if inventory and inventory.path else []
    runbooks = [held for held in found if held]
    return Checked(files=[*files, *(path for path, _ in runbooks)], commit=runbooks[0][1])


def _any_pod() -> Pod:
    return Pod(name=LOCAL, transport="local")


def _runbooks(given: str | None, pod: Pod | None, root: Path, *, named: bool) -> Sequence[str]:
    """The runbook that was given, else the one that a named pod takes, else all of the repository."""
    if given:
        return [given]
    return (own_runbooks(root) if not named else None) or [default_runbook(pod, root)]


def _hold_runbook(what: What, name: str, pod: Pod) -> tuple[str, str]:
    request = find(Asked(lambda: pod, what.repo, what.commit, name))
    steps = Together()
    steps.add(request.findings)
    steps.finish()
    return request.origin["path"], request.revision.commit


def _hold_inventory(inventory: Inventory, root: Path) -> None:
    """What the pods name exists: runbooks and environments."""
    steps = Together()
    for pod in inventory.pods.values():
        for key, given, hold in (
            ("runbook", pod.runbook, lambda name: locate_runbook(name, root)),
            ("environment", pod.environment, lambda name: require_environment(table(), name)),
        ):
            try:
                if given is not None:
                    hold(given)
            except InputError as e:
                steps.add([f"{inventory.place('pods', pod.name, key)} {e}"])
    steps.finish()
