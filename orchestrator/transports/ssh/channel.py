"""A command on one paramiko channel that is spoken with, for as long as the connection lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import paramiko

from orchestrator.errors import ContactLost, NoShell
from orchestrator.transports.base import Channel, Completed
from orchestrator.transports.limits import GREETING_LIMIT, STDERR_KEPT
from orchestrator.transports.ssh.bounds import open_session
from orchestrator.transports.ssh.remote import RemoteCommand

# Small, so that the answer to a heartbeat is never far behind what the command writes.
_WINDOW = 1 << 18
_CHUNK = 1 << 15
_LOOK_S = 0.5
_STATUS_S = 1.0


class SshChannel(Channel):
    """`told` is a context that makes a sentence of what goes wrong in it."""

    def __init__(
        self,
        transport: paramiko.Transport,
        command: RemoteCommand,
        limit: float,
        told: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._command, self._told = command, told
        self._greeting: bytearray | None = bytearray()  # what a login script says, until the command begins
        self._stderr = b""
        self._channel = open_session(transport, _WINDOW, limit)
        self._channel.in_window_threshold = _WINDOW // 2  # a receipt for each tenth would be traffic of its own
        self._channel.exec_command(command.line)

    @property
    def has_begun(self) -> bool:
        return self._greeting is None

    def send(self, data: bytes) -> int:
        with self._told():
            return self._channel.send(data[:_CHUNK]) if self._channel.send_ready() else 0

    def receive(self, limit: float) -> bytes | None:
        deadline = time.monotonic() + limit
        with self._told():
            while True:
                self._drain_stderr()
                left = deadline - time.monotonic()
                self._channel.settimeout(max(0.0, min(left, _LOOK_S)))
                try:
                    data = self._channel.recv(_CHUNK)
                except TimeoutError:
                    data = b""
                else:
                    if not data:
                        self._require_ended()
                        return None
                data = self._without_greeting(data)
                if data or left <= 0:
                    return data

    def complaint(self) -> str:
        with suppress(OSError, paramiko.SSHException):
            self._drain_stderr()
        said = bytes(self._greeting or b"")  # all that came, where a login shell has run nothing
        return Completed(self._channel.exit_status, said, self._command.clean(self._stderr)).complaint()

    def close(self) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()

    def _require_ended(self) -> None:
        """The output has ended: was that the command, or the connection?"""
        self._channel.status_event.wait(_STATUS_S)
        if self._channel.exit_status < 0:
            raise ContactLost("the connection broke")
        if self._greeting is not None:
            raise NoShell(f"the login shell does not run commands ({self.complaint()})")

    def _drain_stderr(self) -> None:
        """What is there now; it may come as fast as it is taken."""
        for _ in range(_WINDOW // _CHUNK):
            if self._channel.recv_stderr_ready():
                self._stderr = (self._stderr + self._channel.recv_stderr(_CHUNK))[-STDERR_KEPT:]

    def _without_greeting(self, data: bytes) -> bytes:
        if self._greeting is None:
            return data
        self._greeting += data
        _, token, rest = bytes(self._greeting).partition(self._command.token.encode() + b"\n")
        if token:
            self._greeting = None
            return rest
        if len(self._greeting) > GREETING_LIMIT:
            raise NoShell("the login shell does not run commands")
        return b""
