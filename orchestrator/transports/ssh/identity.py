"""Which private keys are offered to a server, in which order: what OpenSSH would do, for paramiko."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.agent import Agent
from paramiko.auth_strategy import AuthResult, AuthSource, AuthStrategy, InMemoryPrivateKey, SourceResult
from paramiko.pkey import PublicBlob, UnknownKeyType

from orchestrator.transports.ssh.endpoint import Endpoint


class Identities(AuthStrategy):
    """The endpoint's identity files, then (unless it wants identities only) the rest of the agent's keys.

    A file that is locked by a passphrase is offered through the agent, if the agent holds it: nothing here ever asks.
    `offered` says what was tried, for the error; by file name, as paths of keys are nobody else's business.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())  # not used: the endpoint says it all
        self._endpoint = endpoint
        self.offered: list[str] = []

    def authenticate(self, transport: paramiko.Transport) -> AuthResult:
        """Offer the keys one by one, until one is accepted or the server has had enough."""
        result = AuthResult(self)
        for source in self.get_sources():
            try:
                result.append(SourceResult(source, source.authenticate(transport)))
                return result
            except paramiko.AuthenticationException as refused:
                if "timeout" in str(refused).lower() or not transport.is_active():
                    raise
        raise paramiko.AuthenticationException("no key was accepted")

    def get_sources(self) -> Iterator[AuthSource]:
        """The keys in their order, each read when it is its turn."""
        agent = {key.asbytes(): key for key in self._agent_keys()}
        for name in self._endpoint.identity_files:
            yield from self._from_file(Path(name), agent)
        if not self._endpoint.identities_only:
            for key in agent.values():
                yield self._source(key, "agent")

    def _agent_keys(self) -> tuple[paramiko.PKey, ...]:
        named = dict(self._endpoint.options).get("identityagent", "SSH_AUTH_SOCK")
        if named not in ("SSH_AUTH_SOCK", os.environ.get("SSH_AUTH_SOCK")):
            return ()  # paramiko speaks to $SSH_AUTH_SOCK only
        try:
            return tuple(Agent().get_keys())
        except (paramiko.SSHException, OSError):
            return ()  # an agent that is gone holds no keys

    def _from_file(self, path: Path, agent: dict[bytes, paramiko.PKey]) -> Iterator[AuthSource]:
        try:
            key = paramiko.PKey.from_path(path)
        except (TypeError, paramiko.PasswordRequiredException):  # cryptography's and paramiko's word for "locked"
            held = agent.pop(_public_blob(path), None)
            if held:
                yield self._source(held, f"{path.name} through the agent")
            else:
                self.offered.append(f"{path.name}: locked by a passphrase and not in the agent, see ssh-add")
        except (paramiko.SSHException, UnknownKeyType, OSError, ValueError):
            public = path.suffix == ".pub"
            said = "a public key, expected the private one" if public else "not a key that can be used here"
            self.offered.append(f"{path.name}: {said}")
        else:
            agent.pop(key.asbytes(), None)
            yield self._source(key, path.name)

    def _source(self, key: paramiko.PKey, where: str) -> AuthSource:
        self.offered.append(f"{where}: {key.fingerprint}")
        return InMemoryPrivateKey(self._endpoint.user, key)


def _public_blob(private: Path) -> bytes:
    public = Path(f"{private}.pub")
    return PublicBlob.from_file(str(public)).key_blob if public.is_file() else b""
