"""How an agent is started, asked for and ended: `launcher_of` gives the launcher of a pod."""

from __future__ import annotations

from orchestrator.launchers.base import Launcher
from orchestrator.launchers.process import ProcessLauncher
from orchestrator.pod.client import Agent


def launcher_of(agent: Agent) -> Launcher:
    """The one that the pod's inventory entry asks for: there is one kind so far."""
    return ProcessLauncher(agent)
