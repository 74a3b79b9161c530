"""paramiko with limits on what a server may have it hold.

It believes what a packet says of its length, reads a first line for as long as it goes on, and keeps what comes beyond
a channel's window.
"""

from __future__ import annotations

import time
from typing import Any

import paramiko
from paramiko.buffered_pipe import BufferedPipe
from paramiko.packet import Packetizer

# RFC 4253, 6.1: implementations must be able to take 35000 bytes, and should take more where it makes sense.
_LONGEST_PACKET = 1 << 18
_LONGEST_GREETING = 1 << 16
AGAIN_S = 2.0
"""A server that counts sessions, or connections that have not logged in, still counts what was closed just now."""


class TurnedAway(paramiko.SSHException):
    """The server accepted the connection and said something else than SSH: `Exceeded MaxStartups`, or HTTP."""


class _Packets(Packetizer):
    greeting = b""

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """As paramiko has it. SSHException for what is longer than a packet."""
        if n > _LONGEST_PACKET:
            raise paramiko.SSHException(f"the server announces a packet of {n} bytes")
        data: bytes = super().read_all(n, check_rekey)
        return data

    def _read_timeout(self, timeout: float) -> bytes:
        """A part of the lines before the first packet."""
        data: bytes = super()._read_timeout(timeout)  # type: ignore[misc]
        self.greeting += data
        if len(self.greeting) > _LONGEST_GREETING:
            raise paramiko.SSHException("Error reading SSH protocol banner: it is too long")
        return data


class _Received(BufferedPipe):  # type: ignore[type-arg]
    most = 0

    def feed(self, data: bytes) -> None:
        """As paramiko has it. SSHException, which ends the connection, for more than the window lets through."""
        if len(self) + len(data) > self.most:
            raise paramiko.SSHException("the server sends more than it may")
        super().feed(data)


def transport(sock: Any, **options: Any) -> paramiko.Transport:
    """As `paramiko.Transport`."""
    made = paramiko.Transport(sock, **options)
    made.packetizer = _Packets(sock)
    return made


def said_instead(made: paramiko.Transport | None) -> str:
    """The last line that the server of a transport which could not be opened said, if no line of it was SSH."""
    greeting = made.packetizer.greeting if made and isinstance(made.packetizer, _Packets) else b""
    lines = greeting.decode(errors="replace").strip().splitlines()
    return "" if not lines or any(line.startswith("SSH-") for line in lines) else lines[-1]


def open_session(over: paramiko.Transport, window: int, limit: float) -> paramiko.Channel:
    """A channel for a command, with that window; it is open within `limit` seconds, also of a server that has few
    (MaxSessions).
    """
    channel = None
    end = time.monotonic() + AGAIN_S
    while channel is None:
        try:
            channel = over.open_session(window_size=window, timeout=limit)
        except paramiko.ChannelException:
            if time.monotonic() > end:
                raise
            time.sleep(AGAIN_S / 20)
    for pipe in (channel.in_buffer, channel.in_stderr_buffer):
        pipe.__class__ = _Received
        pipe.most = 2 * window  # type: ignore[attr-defined]
    return channel
