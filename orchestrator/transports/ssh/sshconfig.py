"""Endpoint -> ssh_config: the one file that ssh, rsync and Fabric connect by."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orchestrator.store.hostkeys import alias, host_key_alias
from orchestrator.transports.ssh.endpoint import Endpoint

CONNECT_LIMIT_S = 8
_ALIVE_EVERY_S = 3  # times two unanswered: a stalled peer is noticed within 9 s
_PERSIST_S = 60

Settings = Mapping[str, str]

_COMMON: Settings = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "UpdateHostKeys": "no",
    "ConnectTimeout": str(CONNECT_LIMIT_S),
    "ConnectionAttempts": "1",
    "ServerAliveInterval": str(_ALIVE_EVERY_S),
    "ServerAliveCountMax": "2",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RequestTTY": "no",
    "LogLevel": "ERROR",
}
# Of a person's own session: questions can be answered, forwardings asked for, and a while without contact sat out.
BY_HAND: Settings = {
    **_COMMON,
    "BatchMode": "no",
    "ServerAliveCountMax": "20",
    "ClearAllForwardings": "no",
    "RequestTTY": "auto",
}


def render(
    pod: str,
    endpoint: Endpoint,
    *,
    path: Path,
    known_hosts: Path,
    control: Path | None,
    settings: Settings = _COMMON,
) -> str:
    """The text of the configuration that will be at `path`; without `control` each connection is one of its own."""
    shared = {"ControlMaster": "auto", "ControlPath": _quote(control), "ControlPersist": str(_PERSIST_S)}
    pinned = {
        "HostKeyAlias": host_key_alias(pod),
        "UserKnownHostsFile": _quote(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        **(shared if control else {}),
    }
    chain = [endpoint, *endpoint.hops]
    names = [alias(pod), *(f"{alias(pod)}.hop{n}" for n in range(1, len(chain)))]
    blocks = []
    for n, server in enumerate(chain):
        following = names[n + 1] if server.via else None
        lines = [*(pinned.items() if n == 0 else ()), *_address(server, path, following), *settings.items()]
        blocks.append(_block(names[n], lines))
    return "\n".join(blocks)


def proxy_command(endpoint: Endpoint, path: Path, hop: str | None) -> str | None:
    """How the server is reached if not directly: by its own ProxyCommand, or through `hop` of the same file."""
    if hop:
        return f"ssh -F {shlex.quote(str(path))} -W '[%h]:%p' {hop}"
    return endpoint.proxy_command


def _address(server: Endpoint, path: Path, hop: str | None) -> Iterator[tuple[str, str]]:
    yield "HostName", server.host
    yield "Port", str(server.port)
    yield "User", server.user
    for name in server.identity_files:
        yield "IdentityFile", _quote(name)
    if server.identities_only:
        yield "IdentitiesOnly", "yes"
    yield from server.options
    proxy = proxy_command(server, path, hop)
    if proxy:
        yield "ProxyCommand", proxy


def _block(name: str, lines: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"Host {name}", *(f"  {key} {value}" for key, value in lines)]) + "\n"


def _quote(path: object) -> str:
    """A path as one word, whose percent signs are not tokens."""
    return '"{}"'.format(str(path).replace("%", "%%"))
