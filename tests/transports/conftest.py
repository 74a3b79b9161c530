"""Transports to a real server."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.store.hostkeys import Trust
from orchestrator.transports import open_transport
from orchestrator.transports.base import Transport
from orchestrator.transports.ssh.transport import SshTransport
from tests.support.sshd import Sshd


@pytest.fixture
def ssh(sshd: Sshd) -> Iterator[SshTransport]:
    """A connected transport to the shared server."""
    with SshTransport(sshd.pod(), Trust()) as transport:
        yield transport  # type: ignore[misc]


@pytest.fixture
def transport(pod_of: Callable[..., Pod]) -> Iterator[Transport]:
    """Each kind of transport, connected."""
    with open_transport(pod_of()) as opened:
        yield opened


@pytest.fixture
def by_binary() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ssh or rsync with the configuration that a transport generated, outside of its master connection."""

    def run(transport: SshTransport, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        fresh = ["ssh", "-F", str(transport.config), "-o", "ControlPath=none"]
        argv = [*fresh, *arguments] if program == "ssh" else ["rsync", "-e", shlex.join(fresh), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)

    return run
