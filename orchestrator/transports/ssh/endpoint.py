"""Pod -> Endpoint: where an SSH connection goes, as whom, with which keys and through which hops.

A pod that names an alias of the user's ssh_config gets what OpenSSH makes of that alias (`ssh -G`), hops included.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.config.inventory import Pod, address
from orchestrator.errors import InputError
from orchestrator.shared.user import user
from orchestrator.text import plain

_MAX_HOPS = 8
_RESOLVE_LIMIT_S = 20
# What an alias may bring along beside its address. Not `hostkeyalgorithms`: OpenSSH then no longer prefers the type
# of the pinned key.
_CARRIED = (
    "addressfamily bindaddress bindinterface certificatefile ciphers compression identityagent ipqos "
    "kexalgorithms macs pkcs11provider pubkeyacceptedalgorithms securitykeyprovider"
).split()
# Where a hop's own host key is looked up: the user's files, as the user's own `ssh hop` would.
_HOP_TRUST = "userknownhostsfile globalknownhostsfile hostkeyalias".split()
_HOP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:]+)(?::(?P<port>\d+))?/?\Z")


@dataclass(frozen=True)
class Endpoint:
    """One SSH server. `options` are ssh_config lines to carry over; `via` is the hop before it, if any."""

    host: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    options: tuple[tuple[str, str], ...] = ()
    proxy_command: str | None = None
    via: Endpoint | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def hops(self) -> list[Endpoint]:
        """The servers on the way, the one nearest to this endpoint first."""
        return [self.via, *self.via.hops] if self.via else []


def endpoint_of(pod: Pod, user_config: Path | None = None) -> Endpoint:
    """The endpoint of an ssh pod; `user_config` replaces ~/.ssh/config. Raises InputError."""
    if pod.ssh_config:
        return _override(_endpoint_of_alias(pod.ssh_config, user_config, pod.name), pod)
    assert pod.host is not None  # the inventory's model says so
    identity = _identity(pod)
    return Endpoint(
        host=pod.host,
        port=pod.port or 22,
        user=pod.user or _user(user() or "", pod),
        identity_files=identity or _default_identities(),
        identities_only=bool(identity),
    )


def _override(endpoint: Endpoint, pod: Pod) -> Endpoint:
    identity = _identity(pod)
    return replace(
        endpoint,
        port=pod.port or endpoint.port,
        user=pod.user or _user(endpoint.user, pod),
        identity_files=identity or endpoint.identity_files,
        identities_only=bool(identity) or endpoint.identities_only,
    )


def _identity(pod: Pod) -> tuple[str, ...]:
    if pod.identity_file is None:
        return ()
    path = Path(os.path.expanduser(pod.identity_file))
    if not os.path.isfile(path):  # False also for what cannot be a path
        wrong = "is no file" if os.path.exists(path) else "does not exist"
        raise InputError(f"pod {pod.name!r}: identity_file {pod.identity_file} {wrong}: expected a private key")
    return (str(path.absolute()),)


def _default_identities() -> tuple[str, ...]:
    names = ("id_ed25519", "id_ecdsa", "id_rsa")
    return tuple(str(p) for p in (Path.home() / ".ssh" / name for name in names) if p.is_file())


def _user(found: str, pod: Pod) -> str:
    """The user that this machine or its ssh_config names."""
    try:
        return address(found)
    except ValueError as e:
        raise InputError(f"pod {pod.name!r}: user: {e}") from e


def _endpoint_of_alias(alias: str, user_config: Path | None, pod: str, depth: int = 0) -> Endpoint:
    """What `ssh alias` would do. `alias` may be [user@]host[:port], as in ProxyJump."""
    parts = _HOP.match(alias)
    if parts is None or alias.startswith("-") or "\0" in alias or depth > _MAX_HOPS:
        what = f"passes through more than {_MAX_HOPS} jump hosts" if depth > _MAX_HOPS else f"names {plain(alias)!r}"
        raise InputError(f"pod {pod!r}: its ssh_config {what}: expected an alias of the user's ssh_config")
    found = effective(parts["host"].strip("[]"), user_config, pod, parts["user"], parts["port"])
    jumps = _single(found, "proxyjump")
    via = _chain(jumps.split(","), user_config, pod, depth) if jumps else None
    wanted = (*_CARRIED, *_HOP_TRUST) if depth else _CARRIED
    files = tuple(p for p in (os.path.expanduser(name) for name in found.get("identityfile", ())) if Path(p).is_file())
    return Endpoint(
        host=found["hostname"][0],
        port=int(found["port"][0]),
        user=found["user"][0],
        identity_files=files,
        identities_only=_single(found, "identitiesonly") == "yes",
        options=tuple((key, value) for key in wanted for value in found.get(key, ()) if value != "none"),
        proxy_command=None if via else _single(found, "proxycommand"),
        via=via,
    )


def _chain(hops: Iterable[str], user_config: Path | None, pod: str, depth: int) -> Endpoint:
    """The endpoint of the last hop; each is reached through the one before it, whatever its own configuration says."""
    endpoint: Endpoint | None = None
    for hop in hops:
        found = _endpoint_of_alias(hop.strip(), user_config, pod, depth + 1)
        endpoint = found if endpoint is None else replace(found, via=endpoint, proxy_command=None)
    assert endpoint is not None  # "a,b".split(",") is never empty
    return endpoint


def _single(found: Mapping[str, list[str]], key: str) -> str | None:
    value = found.get(key, ["none"])[0]
    return None if value.lower() == "none" else value


def effective(
    host: str, config_file: Path | None, pod: str, user: str | None = None, port: str | None = None
) -> dict[str, list[str]]:
    """`ssh -G`: the effective configuration for `host`, each key with its values in order. InputError if there is none.

    `config_file` replaces ~/.ssh/config.
    """
    config = ["-F", str(config_file)] if config_file else []
    account = ["-l", user] if user else []
    at = ["-p", port] if port else []
    argv = ["ssh", *config, "-G", *account, *at, "--", host]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_RESOLVE_LIMIT_S)
    except FileNotFoundError:
        raise InputError(f"pod {pod!r}: 'ssh_config' needs the OpenSSH client, and there is no `ssh` here") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"pod {pod!r}: `ssh -G {host}` did not answer within {_RESOLVE_LIMIT_S} s") from None
    if done.returncode != 0:
        raise InputError(f"pod {pod!r}: ssh cannot resolve {host!r}: {plain(done.stderr.decode(errors='replace'))}")
    found: dict[str, list[str]] = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append(value)
    return found
