"""The way to a pod that is not reached directly: a command (its ProxyCommand, or ssh to a jump host) as a socket."""

from __future__ import annotations

import re
import socket

from orchestrator.transports.ssh.children import GRACE_S, Background
from orchestrator.transports.ssh.endpoint import Endpoint


class Proxy:
    """A running ProxyCommand. A jump host's key is verified by the OpenSSH client that the command starts."""

    def __init__(self, command: str, endpoint: Endpoint, alias: str) -> None:
        ours, theirs = socket.socketpair()
        self.socket = ours
        with theirs:
            argv = ["sh", "-c", f"exec {_expand(command, endpoint, alias)}"]
            self._child = Background(argv, stdin=theirs.fileno(), stdout=theirs.fileno())

    def complaint(self) -> bytes | None:
        """What the command said, if it has failed; a broken connection shows a moment before the command's end."""
        return self._child.said() if self._child.code(GRACE_S / 4) else None

    def close(self) -> None:
        """End the command."""
        self.socket.close()
        self._child.end()


def _expand(command: str, endpoint: Endpoint, alias: str) -> str:
    """ssh_config(5), TOKENS: ProxyCommand takes %%, %h, %n, %p and %r."""
    values = {"%": "%", "h": endpoint.host, "n": alias, "p": str(endpoint.port), "r": endpoint.user}
    return re.sub(r"%([%hnpr])", lambda found: values[found[1]], command)
