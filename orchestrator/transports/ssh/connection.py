"""A Fabric connection that trusts a pinned key only and never waits without a limit.

Fabric as it comes accepts any host key and builds its gateways the same way, so the pin is checked here, and a pod that
is not reached directly is reached through an OpenSSH client that reads the same generated configuration.
"""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import fabric
import paramiko

from orchestrator.store.hostkeys import HostKey
from orchestrator.transports.ssh import bounds
from orchestrator.transports.ssh.identity import Identities
from orchestrator.transports.ssh.sshconfig import CONNECT_LIMIT_S

_PROBE_EVERY_S = 2.0
_ANSWER_LIMIT_S = 6.0
STALL_LIMIT_S = _PROBE_EVERY_S + _ANSWER_LIMIT_S
# Small, so that on a slow line a probe does not queue behind megabytes of a command's input.
_SEND_BUFFER = 1 << 16


class KeyRefused(Exception):
    """The server holds another host key than the pinned one, or none is pinned; nothing was sent to it."""

    def __init__(self, offered: HostKey) -> None:
        super().__init__(str(offered))
        self.offered = offered


class _Refuse(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise KeyRefused(_host_key(key))


def _host_key(key: paramiko.PKey) -> HostKey:
    return HostKey(key.get_name(), key.get_base64())


class PinnedConnection(fabric.Connection):  # type: ignore[misc]
    """`open` raises KeyRefused, TurnedAway, or what paramiko and sockets raise; CONNECT_LIMIT_S bounds each step."""

    _pin: HostKey | None = None  # declared here, as Fabric takes other attributes for its configuration

    def __init__(
        self,
        alias: str,
        config: Path,
        identities: Identities,
        *,
        pin: HostKey | None,
        proxy: socket.socket | None = None,
        key_types: tuple[str, ...] = (),
    ) -> None:
        # This ssh_config only: not the user's, and no fabric.yaml either.
        settings = fabric.Config(
            runtime_ssh_path=str(config),
            lazy=True,
            overrides={"authentication": {"strategy_class": lambda **_: identities}},
        )
        settings.load_ssh_config()
        limits = dict.fromkeys(("banner_timeout", "auth_timeout", "channel_timeout"), CONNECT_LIMIT_S)
        super().__init__(
            alias,
            config=settings,
            gateway=False,
            connect_timeout=CONNECT_LIMIT_S,
            connect_kwargs={
                **limits,
                **({"sock": proxy} if proxy else {}),
                "transport_factory": partial(_transport, key_types),
            },
        )
        self._pin = pin

    def open(self) -> None:
        """Connect, verify the host key, authenticate."""
        client = self.client
        client.set_missing_host_key_policy(_Refuse())
        if self._pin:
            name = self.host if self.port == paramiko.config.SSH_PORT else f"[{self.host}]:{self.port}"
            key = paramiko.PKey.from_type_string(self._pin.kind, base64.b64decode(self._pin.blob))
            client.get_host_keys().add(name, self._pin.kind, key)
        try:
            super().open()
        except paramiko.BadHostKeyException as changed:
            raise KeyRefused(_host_key(changed.key)) from changed
        except paramiko.SSHException as error:
            if said := bounds.said_instead(client.get_transport()):
                raise bounds.TurnedAway(said) from error
            raise
        finally:
            if self.transport is None:
                client.close()  # Fabric closes only what was opened to the end
        sock = self.transport.sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if sock.family != socket.AF_UNIX:  # or each command waits 40 ms for a delayed acknowledgement
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _transport(key_types: tuple[str, ...], sock: socket.socket, **options: Any) -> paramiko.Transport:
    transport = bounds.transport(sock, **options)
    if key_types:
        transport.get_security_options().key_types = key_types
    return transport


class Heartbeat:
    """Asks the peer for a sign of life every 2 s, and closes the transport when none came within 6 s.

    paramiko's own keepalive expects no answer, so it does not notice a peer that is stopped while its TCP stays open.
    """

    def __init__(self, transport: paramiko.Transport) -> None:
        self.stalled = False
        self._transport = transport
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="nsa-pod heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the asking, before the transport is closed."""
        self._stop.set()

    def _beat(self) -> None:
        while not self._stop.wait(_PROBE_EVERY_S) and self._transport.is_active():
            alarm = threading.Timer(_ANSWER_LIMIT_S, self._declare_stalled)
            alarm.daemon = True
            alarm.start()
            with suppress(EOFError, OSError, paramiko.SSHException):  # it was closed, or broke, before this was sent
                self._transport.global_request("keepalive@openssh.com", wait=True)
            alarm.cancel()

    def _declare_stalled(self) -> None:
        self.stalled = True
        self._transport.close()
