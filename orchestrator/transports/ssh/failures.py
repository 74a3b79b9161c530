"""What sockets, paramiko and the ssh binary complain about -> one sentence with what to do."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

import paramiko

from orchestrator.errors import ContactLost, HostKeyError, NsaPodError, Unreachable
from orchestrator.text import plain
from orchestrator.transports.ssh.bounds import TurnedAway
from orchestrator.transports.ssh.endpoint import Endpoint
from orchestrator.transports.ssh.sshconfig import CONNECT_LIMIT_S

SSH_FAILED = 255
"""The exit status of an OpenSSH client that could not connect, or lost the connection."""

_REFUSED = "the connection is refused: is the machine running, is the port right?"
_UNRESOLVED = "the host name cannot be resolved"
_NO_SSH = "the port is open, but no SSH server answers there"
_NO_ANSWER = f"there is no answer within {CONNECT_LIMIT_S} s"

_SSH_SAYS: Sequence[tuple[str, type[NsaPodError], str]] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|[Hh]ost key (verification failed|is known for)|differs from the key",
        HostKeyError,
        "a host key is not the known one; for a jump host, connect to it once with ssh to verify it",
    ),
    (
        r"UNPROTECTED PRIVATE KEY FILE|bad permissions",
        Unreachable,
        "ssh does not use a private key that others can read: chmod 600 the identity file",
    ),
    (r"Permission denied \(|Too many authentication failures", Unreachable, "the server accepts none of the keys"),
    (r"Connection refused", Unreachable, _REFUSED),
    (r"Could not resolve hostname", Unreachable, _UNRESOLVED),
    (r"timed out", Unreachable, _NO_ANSWER),
    (
        r"stdio forwarding failed",
        Unreachable,
        "the jump host cannot reach it: is the machine running, is the port right?",
    ),
    (r"No route to host|Network is unreachable", Unreachable, "there is no route to it"),
)


def connect_failed(
    pod: str, endpoint: Endpoint, error: Exception, offered: Sequence[str], proxy_said: bytes | None
) -> NsaPodError:
    """The error for a connection that could not be made; `offered` are the keys that were tried, `proxy_said`
    is what a proxy that failed said."""
    what = f"pod {pod!r}: cannot connect to {endpoint} as {endpoint.user}"
    if proxy_said is not None:
        return ssh_failed(f"{what} through {endpoint.via or 'its ProxyCommand'}", proxy_said, Unreachable)
    return Unreachable(f"{what}: {_reason(error, offered)}")


def ssh_failed(what: str, stderr: bytes, otherwise: type[NsaPodError] = ContactLost) -> NsaPodError:
    """The error for an OpenSSH client that ended with SSH_FAILED."""
    said = stderr.decode(errors="replace")
    for pattern, kind, sentence in _SSH_SAYS:
        if re.search(pattern, said):
            return kind(f"{what}: {sentence}{_quoted(said)}")
    return otherwise(f"{what}: the connection broke{_quoted(said)}")


def _reason(error: Exception, offered: Sequence[str]) -> str:
    text = str(error)
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        return _reason(next(iter(error.errors.values())), offered)
    if isinstance(error, TurnedAway):
        return f"{_NO_SSH} (it says: {plain(text, 200)})"
    # paramiko's words for a server that accepts the connection and then says nothing, in each phase
    if "banner" in text or "No existing session" in text or "timeout" in text.lower():
        return _NO_SSH
    if isinstance(error, paramiko.AuthenticationException):
        keys = "; ".join(offered)
        return f"the server accepts none of the keys ({keys})" if keys else "there is no private key to offer"
    if isinstance(error, ConnectionRefusedError):
        return _REFUSED
    if isinstance(error, socket.gaierror):
        return _UNRESOLVED
    if isinstance(error, TimeoutError):
        return _NO_ANSWER
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return f"its SSH server has no algorithm that is still considered safe ({plain(text)})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return plain(text) or "the server closed the connection"


def _quoted(said: str) -> str:
    lines = [line for line in said.strip().splitlines() if not line.startswith("@")]
    return f" (ssh says: {plain(lines[-1], 200)})" if lines else ""
