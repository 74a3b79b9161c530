"""A connection, as its heartbeat sees it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import cast

import paramiko
import pytest

from orchestrator.transports.ssh import connection


def test_a_connection_that_breaks_before_a_heartbeat_is_sent_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def closed(kind: str, wait: bool) -> None:
        seen.append(kind)
        raise EOFError

    monkeypatch.setattr(threading, "excepthook", seen.append)
    monkeypatch.setattr(connection, "_PROBE_EVERY_S", 0.01)
    transport = SimpleNamespace(is_active=lambda: not seen, global_request=closed)
    heartbeat = connection.Heartbeat(cast(paramiko.Transport, transport))
    heartbeat._thread.join(10)
    assert seen == ["keepalive@openssh.com"] and not heartbeat.stalled
