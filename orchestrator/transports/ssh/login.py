"""A person's own session on a pod: the user's OpenSSH client, by the pod's pinned key and settings."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from orchestrator.config.inventory import Pod
from orchestrator.errors import PodError
from orchestrator.home import home
from orchestrator.store import hostkeys
from orchestrator.store.names import alias, key_of
from orchestrator.transports.ssh import sshconfig
from orchestrator.transports.ssh.endpoint import endpoint_of
from orchestrator.transports.ssh.transport import SshTransport


def login(pod: Pod, trust: hostkeys.Trust, arguments: Sequence[str], user_config: Path | None = None) -> list[str]:
    """The command that logs in, with `arguments` after the host; its configuration is left beside the pins.

    A pod without a pin is connected to first, for its key to be accepted or refused as ever.
    """
    if shutil.which("ssh") is None:
        raise PodError(f"pod {pod.name!r}: there is no `ssh` on this machine")
    endpoint = endpoint_of(pod, user_config)
    if trust.accept_new or hostkeys.pinned(pod) is None or not hostkeys.is_pinned(pod):
        with SshTransport(pod, trust, user_config):
            pass
    config = home() / "ssh" / f"{key_of(pod)}.config"
    text = sshconfig.render(
        pod,
        endpoint,
        path=config,
        known_hosts=hostkeys.known_hosts(),
        control=None,
        settings=sshconfig.BY_HAND,
    )
    sshconfig.write(config, pod, text, endpoint)
    return ["ssh", "-F", str(config), alias(pod.name), *arguments]
