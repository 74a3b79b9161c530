"""Host keys, pinned for each pod of each inventory: under names of their own, in the project's own known_hosts.

A rented address comes back as another machine overnight, so a pin belongs to a pod and not to host:port, and the user's
known_hosts is neither read nor written for pods. A pin that is replaced is kept in an audit list. Pins of an older
store, which knew no inventories, hold until the machine that shows their key is known by a name of its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from orchestrator.config.inventory import Pod
from orchestrator.errors import HostKeyError
from orchestrator.files import locked, write_atomically
from orchestrator.home import home
from orchestrator.store.names import alias, key_of


def host_key_alias(pod: Pod) -> str:
    """The name under which the pod's host key is pinned: its own, not its address, which is soon someone else's."""
    return f"nsa-pod-{key_of(pod)}"


@dataclass(frozen=True)
class HostKey:
    """A public host key as OpenSSH writes it: its type and its blob in base64."""

    kind: str
    blob: str

    @property
    def fingerprint(self) -> str:
        """SHA256:... as `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"

    def __str__(self) -> str:
        return f"{self.kind} {self.fingerprint}"


@dataclass(frozen=True)
class Trust:
    """Who accepts a key that is not pinned: `ask` (a person; unknown keys), `accept_new` (changed keys too)."""

    ask: Callable[[str], bool] | None = None
    accept_new: bool = False


def known_hosts() -> Path:
    """The file with the pins; OpenSSH reads it too."""
    return home() / "known_hosts"


def audit_list() -> Path:
    """The file with every pin that was accepted or replaced, and when."""
    return home() / "known_hosts.audit"


def pinned(pod: Pod) -> HostKey | None:
    """The pod's pin, else that of its name in an older store; none that contradicts the inventory's `host_key`."""
    known = {words[0]: HostKey(*words[1:3]) for words in reversed(list(_entries()))}
    key = known.get(host_key_alias(pod)) or known.get(_older(pod))
    try:
        return key if key and is_allowed(pod, key) else None
    except ValueError as e:
        raise HostKeyError(f"the pin of pod {pod.name!r} in {known_hosts()} is damaged: delete its line") from e


def is_pinned(pod: Pod) -> bool:
    """Whether the pod has a pin under its own name, where OpenSSH looks for it."""
    return any(words[0] == host_key_alias(pod) for words in _entries())


def take_over(pod: Pod, shown: HostKey) -> None:
    """Have the pin of an older store, which the machine has just shown, under the pod's own name."""
    if not is_pinned(pod):
        _pin(host_key_alias(pod), shown, "an older store", instead_of=_older(pod))


def _older(pod: Pod) -> str:
    return f"nsa-pod-{alias(pod.name)}"


def accept(pod: Pod, offered: HostKey, trust: Trust) -> None:
    """Pin the key that the pod offers if somebody answers for it; else HostKeyError."""
    name = f"pod {pod.name!r}"
    old = pinned(pod)
    if not is_allowed(pod, offered):
        raise HostKeyError(
            f"{name} offers the host key {offered}, and its inventory entry pins {pod.host_key}: it is another machine,"
            " or `host_key` is to be changed"
        )
    if old == offered:  # somebody else has answered for it meanwhile
        return
    if old and not trust.accept_new:
        raise HostKeyError(
            f"{name} changed its host key: pinned is {old}, offered is {offered}; it is another machine, or someone in"
            " between: if you expect the change, repeat with --accept-new-host-key"
        )
    by = "inventory" if pod.host_key else "--accept-new-host-key"
    if not pod.host_key and not trust.accept_new:
        if trust.ask is None or not trust.ask(f"{name} is new, its host key is {offered}. Is it the right machine?"):
            raise HostKeyError(
                f"{name} is new and its host key {offered} was accepted by nobody: compare it with what the provider"
                " shows, then repeat with --accept-new-host-key or write it as `host_key` into the inventory"
            )
        by = "asked"
    _pin(host_key_alias(pod), offered, by)


def is_allowed(pod: Pod, key: HostKey) -> bool:
    """Whether the inventory pins no other key."""
    return pod.host_key is None or pod.host_key.rstrip("=") == key.fingerprint


def _entries() -> Iterator[list[str]]:
    path = known_hosts()
    if path.exists():
        lines = (line.split() for line in path.read_text(errors="replace").splitlines())
        yield from (words for words in lines if len(words) >= 3)


def _pin(name: str, key: HostKey, by: str, instead_of: str = "") -> None:
    with locked(home() / "known_hosts.lock"):
        entries = list(_entries())
        gone = (name, instead_of)
        replaced = " ".join(str(HostKey(*words[1:3])) for words in entries if words[0] in gone) or "-"
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with audit_list().open("a") as audit:
            audit.write(f"{now} {name} accepted {key} replaced {replaced} by {by}\n")
        kept = [" ".join(words) for words in entries if words[0] not in gone]
        write_atomically(known_hosts(), "\n".join([*kept, f"{name} {key.kind} {key.blob}"]) + "\n")
