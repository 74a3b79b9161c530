"""The agent on a pod, called in this process as the tasks call it; and what they tell meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.config.inventory import Pod
from orchestrator.pod.client import Agent, install_agent
from orchestrator.store.hostkeys import Trust
from orchestrator.transports import open_transport
from orchestrator.ui import Progress


class Told(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def detail(self, text: str) -> None:
        self.lines.append(text)

    def busy(self, text: str) -> None:
        self.lines.append(text)


@contextmanager
def agent_on(pod: Pod) -> Iterator[Agent]:
    with open_transport(pod, Trust(None, False)) as transport:
        yield install_agent(transport)
