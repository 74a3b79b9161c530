"""The agent's way to a pod over connections that break: as long as each brings it further, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import ContactLost, Unreachable
from orchestrator.pod import patience
from orchestrator.pod.client import install_agent
from orchestrator.transports.ssh.transport import SshTransport
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd


@pytest.mark.slow
def test_an_agent_that_no_connection_carries_whole_arrives(
    sshd: Sshd, tmp_path: Path, laptop: Path, proxy_to: Callable[..., Proxy]
) -> None:
    line = proxy_to(sshd.port)
    with SshTransport(sshd.pod(port=line.port, workdir=str(tmp_path / "w"))) as transport:
        line.cut()
        line.cut_each(110_000)
        transport.connect()
        agent = install_agent(transport)
        assert 3 <= line.accepted < 30, "each brings it further, a loaded machine's less far"
        line.cut_each(None)
        transport.connect()
        assert agent.runs() == []
    [archive] = (tmp_path / "w").glob("agent-*")
    assert archive.suffix == ".pyz", "no part of it is left"


def test_connections_that_bring_nothing_are_not_made_for_ever(
    sshd: Sshd, tmp_path: Path, laptop: Path, proxy_to: Callable[..., Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PAUSES_S", (0.0,) * 5)
    line = proxy_to(sshd.port)
    with SshTransport(sshd.pod(port=line.port, workdir=str(tmp_path / "w"))) as transport:
        before = line.accepted
        line.cut()
        line.cut_each(2_000)
        with pytest.raises((ContactLost, Unreachable)):
            install_agent(transport)
        assert line.accepted - before < 10
