"""Endpoint -> ssh_config: the one file that ssh, rsync and Fabric connect by."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orchestrator.config.inventory import Pod
from orchestrator.errors import InputError
from orchestrator.files import write_atomically
from orchestrator.store.hostkeys import host_key_alias
from orchestrator.store.names import alias
from orchestrator.transports.ssh.endpoint import Endpoint, effective

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
    pod: Pod,
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
    names = [alias(pod.name), *(f"{alias(pod.name)}.hop{n}" for n in range(1, len(chain)))]
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


def write(path: Path, pod: Pod, text: str, endpoint: Endpoint) -> None:
    """Write the configuration, and have OpenSSH say what it makes of it. InputError if that is not what was meant."""
    write_atomically(path, text)
    if shutil.which("ssh") is None:
        return
    chain = [endpoint, *endpoint.hops]
    for n, server in enumerate(chain):
        name = alias(pod.name) + (f".hop{n}" if n else "")
        following = f"{alias(pod.name)}.hop{n + 1}" if server.via else None
        found = effective(name, path, pod.name)
        meant = {
            "hostname": [server.host.lower()],
            "port": [str(server.port)],
            "user": [server.user],
            "stricthostkeychecking": ["true"],
            "permitlocalcommand": ["no"],
            "proxycommand": [x for x in [proxy_command(server, path, following)] if x],
            **({} if n else {"hostkeyalias": [host_key_alias(pod)]}),
        }
        for key, values in meant.items():
            said = [x for x in found.get(key, []) if x != "none"]
            if [_plain(x) for x in said] != [_plain(x) for x in values]:
                raise InputError(
                    f"pod {pod.name!r}: OpenSSH reads {key} {' '.join(said) or 'none'} for {name}, and "
                    f"{' '.join(values) or 'none'} was meant: a value of its inventory entry or ssh_config is odd"
                )


def _plain(value: str) -> str:
    return value.replace("%%", "%").lower()


def _block(name: str, lines: Iterable[tuple[str, str]]) -> str:
    lines = list(lines)
    odd = next((key for key, value in lines if not value.isprintable()), None)
    if odd:  # a line break would begin a line of somebody else's
        raise InputError(f"{name}: {odd}: expected text without line breaks and control characters")
    return "\n".join([f"Host {name}", *(f"  {key} {value}" for key, value in lines)]) + "\n"


def _quote(path: object) -> str:
    """A path as one word, whose percent signs are not tokens."""
    return '"{}"'.format(str(path).replace("%", "%%"))
