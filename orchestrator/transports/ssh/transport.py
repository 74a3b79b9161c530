"""A pod behind SSH: Fabric for commands and small files, OpenSSH for bulk, both by one generated ssh_config."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import paramiko

from orchestrator.config.inventory import Pod
from orchestrator.errors import CommandTimeout, ContactLost, HostKeyError, NoShell, NsaPodError, PodError
from orchestrator.store import hostkeys
from orchestrator.store.names import alias
from orchestrator.transports.base import Channel, Completed, Supplier, Transport
from orchestrator.transports.limits import COMMAND_LIMIT_S, SILENCE_LIMIT_S
from orchestrator.transports.ssh import sshconfig
from orchestrator.transports.ssh.bounds import AGAIN_S, TurnedAway
from orchestrator.transports.ssh.channel import SshChannel
from orchestrator.transports.ssh.connection import STALL_LIMIT_S, Heartbeat, KeyRefused, PinnedConnection
from orchestrator.transports.ssh.endpoint import Endpoint, endpoint_of
from orchestrator.transports.ssh.execute import Execution
from orchestrator.transports.ssh.failures import connect_failed
from orchestrator.transports.ssh.identity import Identities
from orchestrator.transports.ssh.openssh import OpenSsh
from orchestrator.transports.ssh.proxy import Proxy
from orchestrator.transports.ssh.remote import RemoteCommand, end_group

_END_LIMIT_S = 5.0
_BROKEN = (paramiko.SSHException, OSError, EOFError)
# One attempt for each, to find the key that an inventory names by its fingerprint among those that a server has.
_KEY_TYPES = (
    ("ssh-ed25519",),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    ("rsa-sha2-512", "rsa-sha2-256"),
)
# A Unix socket's path has 104 bytes on macOS, and OpenSSH adds 17 to it while it binds.
_SOCKET_PATH_LIMIT = 104 - 17

# paramiko logs tracebacks of what is raised here as one sentence.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class SshTransport(Transport):
    """`user_config` stands in for ~/.ssh/config where the pod names an alias in it."""

    def __init__(self, pod: Pod, trust: hostkeys.Trust | None = None, user_config: Path | None = None) -> None:
        super().__init__(pod)
        self._trust = trust or hostkeys.Trust()
        self._user_config = user_config
        self._alias = alias(pod.name)
        self._runtime: Path | None = None
        self._proxy: Proxy | None = None
        self._connection: PinnedConnection | None = None
        self._heartbeat: Heartbeat | None = None
        self._bulk: OpenSsh | None = None

    @property
    def config(self) -> Path:
        """The generated ssh_config, while connected."""
        if self._runtime is None:
            raise ContactLost(f"pod {self.pod.name!r} is not connected")
        return self._runtime / "config"

    def connect(self) -> None:
        self.close()
        endpoint = endpoint_of(self.pod, self._user_config)
        self._runtime = _runtime_dir()
        try:
            control = self._runtime / "cm"
            text = sshconfig.render(
                self.pod, endpoint, path=self.config, known_hosts=hostkeys.known_hosts(), control=control
            )
            sshconfig.write(self.config, self.pod, text, endpoint)
            self._connection = self._open_trusted(endpoint)
        except BaseException:
            self.close()
            raise
        self._trust = hostkeys.Trust()  # what shows another key when this is opened again is another machine
        self._heartbeat = Heartbeat(self._connection.transport)
        self._bulk = OpenSsh(f"pod {self.pod.name!r}", self.config, self._alias)

    def close(self) -> None:
        if self._heartbeat:
            self._heartbeat.stop()
        if self._bulk:
            self._bulk.stop()
        self._drop_connection()
        if self._runtime:
            shutil.rmtree(self._runtime, ignore_errors=True)
        self._heartbeat = self._bulk = self._runtime = None

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = COMMAND_LIMIT_S,
    ) -> Completed:
        with self._told(self.naming(argv)):
            return self._execute(RemoteCommand(argv, env or {}), input, timeout)

    def converse(self, argv: Sequence[str]) -> Channel:
        what = self.naming(argv)
        with self._told(what):
            return SshChannel(self._open_transport(), RemoteCommand(argv), STALL_LIMIT_S, lambda: self._told(what))

    @contextmanager
    def stream(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        silence: float = SILENCE_LIMIT_S,
        expected: int | None = None,
    ) -> Iterator[BinaryIO]:
        with self._openssh().stream(RemoteCommand(argv), input, silence, self.naming(argv)) as out:
            yield out

    def supply(self, argv: Sequence[str], write: Supplier, *, input: bytes = b"") -> Completed:
        return self._openssh().supply(RemoteCommand(argv), input, write, self.naming(argv))

    def _openssh(self) -> OpenSsh:
        if self._bulk is None:
            raise ContactLost(f"pod {self.pod.name!r} is not connected")
        return self._bulk

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """What goes wrong with a command on the connection, as a sentence that names it."""
        try:
            yield
        except paramiko.ChannelException as error:
            raise PodError(f"{what}: the SSH server refuses another session ({error.text})") from None
        except (ContactLost, *_BROKEN):
            stalled = self._heartbeat is not None and self._heartbeat.stalled
            how = f"there was no answer for {STALL_LIMIT_S:g} s" if stalled else "the connection broke"
            raise ContactLost(f"{what}: {how}") from None
        except NoShell as error:
            raise NoShell(f"pod {self.pod.name!r}: {error}") from None
        except NsaPodError as error:
            raise type(error)(f"{what} {error}") from None

    def _open_transport(self) -> paramiko.Transport:
        if self._connection is None or not self._connection.is_connected:
            raise ContactLost("not connected")
        transport: paramiko.Transport = self._connection.transport
        return transport

    def _execute(self, command: RemoteCommand, input: bytes, timeout: float) -> Completed:
        transport = self._open_transport()
        with Execution(transport, command, input, STALL_LIMIT_S) as execution:
            try:
                return execution.wait(timeout)
            except CommandTimeout as error:
                if execution.group is None or not _ended(transport, execution.group):
                    raise CommandTimeout(f"{error}, and may still be running there") from None
                raise

    def _open_trusted(self, endpoint: Endpoint) -> PinnedConnection:
        """Connect to a machine with the pinned key, or with one that somebody answers for."""
        pin = hostkeys.pinned(self.pod)
        try:
            connection = self._open(endpoint, pin)
        except KeyRefused as refused:
            pin = self._wanted_key(endpoint, refused.offered)
            hostkeys.accept(self.pod, pin, self._trust)
            try:
                connection = self._open(endpoint, pin)
            except KeyRefused as again:
                raise HostKeyError(
                    f"pod {self.pod.name!r} offers the host key {again.offered} now, and offered {pin} a moment ago"
                ) from None
        if pin:
            hostkeys.take_over(self.pod, pin)
        self.fingerprint = pin.fingerprint if pin else None
        return connection

    def _wanted_key(self, endpoint: Endpoint, first: hostkeys.HostKey) -> hostkeys.HostKey:
        """The offered key that the inventory names, if the server has it; else the one that it offered first."""
        if hostkeys.is_allowed(self.pod, first):
            return first
        for types in _KEY_TYPES:
            try:
                self._open(endpoint, None, types)
            except KeyRefused as refused:
                if hostkeys.is_allowed(self.pod, refused.offered):
                    return refused.offered
            except NsaPodError:
                continue  # it has no key of this type
        return first

    def _open(
        self, endpoint: Endpoint, pin: hostkeys.HostKey | None, key_types: tuple[str, ...] = ()
    ) -> PinnedConnection:
        end = time.monotonic() + AGAIN_S
        while True:
            try:
                return self._attempt(endpoint, pin, key_types)
            except NsaPodError as error:
                if not isinstance(error.__cause__, TurnedAway) or time.monotonic() > end:
                    raise
            time.sleep(AGAIN_S / 20)

    def _attempt(
        self, endpoint: Endpoint, pin: hostkeys.HostKey | None, key_types: tuple[str, ...]
    ) -> PinnedConnection:
        identities = Identities(endpoint)
        hop = f"{self._alias}.hop1" if endpoint.via else None
        command = sshconfig.proxy_command(endpoint, self.config, hop)
        self._proxy = Proxy(command, endpoint, self._alias) if command else None
        sock = self._proxy.socket if self._proxy else None
        connection = PinnedConnection(self._alias, self.config, identities, pin=pin, proxy=sock, key_types=key_types)
        self._connection = connection
        try:
            connection.open()
        except _BROKEN as error:
            said = self._proxy.complaint() if self._proxy else None
            raise connect_failed(self.pod.name, endpoint, error, identities.offered, said) from error
        finally:
            if not connection.is_connected:
                self._drop_connection()
        return connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._proxy:
            self._proxy.close()
        self._connection = self._proxy = None


def _ended(transport: paramiko.Transport, group: int) -> bool:
    """End a process group on the pod, over a channel of its own."""
    with suppress(NsaPodError, *_BROKEN), Execution(transport, end_group(group), b"", _END_LIMIT_S) as execution:
        return execution.wait(_END_LIMIT_S).exit_code == 0
    return False


def _runtime_dir() -> Path:
    """A private directory for the configuration and the control socket, short and without blanks."""
    base = tempfile.gettempdir()
    name_length = len("/nsa-pod-12345678/cm")
    fits = len(base.encode()) + name_length <= _SOCKET_PATH_LIMIT and not any(c.isspace() for c in base)
    return Path(tempfile.mkdtemp(prefix="nsa-pod-", dir=base if fits else "/tmp"))
