"""Carry files to a pod that cannot fetch them itself: a directory of wheels, or uv."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from orchestrator.errors import EnvironmentFailed, InputError
from orchestrator.pod.client import Agent
from orchestrator.pod.facts import PodFacts
from orchestrator.pod.sync import bring_folder
from orchestrator.shared.failure import Failure
from orchestrator.shared.wheels import uv_wheel
from orchestrator.shared.wheels.settings import Settings
from orchestrator.ui import Progress


def carry_wheelhouse(agent: Agent, folder: Path) -> str:
    """Bring a directory of wheels to the pod, unless it is there; where it lies."""
    if not any(folder.glob("*.whl")):
        raise InputError(f"wheelhouse {folder}: expected a directory with wheels")
    return bring_folder(agent, folder, "wheelhouses")


def carry_uv(agent: Agent, facts: PodFacts, progress: Progress) -> None:
    """Bring this machine's index's wheel of uv for the pod there. EnvironmentFailed if there is none to be had."""
    with tempfile.TemporaryDirectory() as folder:
        fetch_uv(facts, Path(folder), progress)
        progress.say("the pod cannot get uv: carrying it there")
        bring_folder(agent, Path(folder), "tools/carried")


def fetch_uv(facts: PodFacts, folder: Path, progress: Progress) -> Path:
    """The newest wheel of uv that runs on the pod, in `folder`, from where this machine's pip gets packages.

    EnvironmentFailed if there is none to be had.
    """
    machine = uv_wheel.Machine(facts.raw["os"], facts.raw["arch"], *(*facts.raw["libc"], "", "")[:2])
    try:
        return uv_wheel.fetch(Settings.of(sys.executable), machine, [], folder, progress)
    except Failure as e:
        raise EnvironmentFailed(f"this machine cannot get uv for the pod: {e}") from e
