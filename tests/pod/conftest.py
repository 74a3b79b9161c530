"""The agent on a pod of either kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.pod.client import Agent, install_agent
from orchestrator.transports import open_transport


@pytest.fixture
def agent(pod_of: Callable[..., Pod], tmp_path: Path) -> Iterator[Agent]:
    with open_transport(pod_of(workdir=str(tmp_path / "work dir"))) as transport:
        yield install_agent(transport)
