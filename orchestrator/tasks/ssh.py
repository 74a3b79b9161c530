"""A person's own session on a pod."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import InputError
from orchestrator.pod.session import PodSession
from orchestrator.store.hostkeys import Trust
from orchestrator.transports import open_transport


def command(session: PodSession, arguments: Sequence[str]) -> list[str]:
    """The ssh command that logs in to the session's pod, with `arguments` after the host."""
    pod = session.pod
    if pod.transport == "local":
        raise InputError(f"pod {pod.name!r} is this machine: expected a pod that is reached by SSH")
    from orchestrator.transports.ssh.login import login  # as open_transport: Fabric takes its time

    return login(pod, Trust(session.confirm, session.accept_new_host_key), arguments)


def look_again(session: PodSession, code: int) -> None:
    """Raise, where ssh has ended with the `code` of a failed connection, what is in the way of one, if anything is.

    A remote command may end with that code too.
    """
    from orchestrator.transports.ssh.failures import SSH_FAILED

    if code == SSH_FAILED:
        session.tell_connecting()
        with open_transport(session.pod):
            pass
