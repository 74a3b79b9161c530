"""How a pod is reached: `open_transport` gives the transport that its inventory entry asks for."""

from __future__ import annotations

from orchestrator.config.inventory import Pod
from orchestrator.store.hostkeys import Trust
from orchestrator.transports.base import Transport


def open_transport(pod: Pod, trust: Trust | None = None) -> Transport:
    """The pod's transport, not yet connected: use it as a context manager."""
    if pod.transport == "local":
        from orchestrator.transports.local import LocalTransport

        return LocalTransport(pod)
    from orchestrator.transports.ssh.transport import (
        SshTransport,  # Fabric takes 0.2 s to import, and `local` does without
    )

    return SshTransport(pod, trust)
