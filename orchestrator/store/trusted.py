"""Which inventories a person has answered for, and which of the laptop's own variables were said to leave it.

An inventory says where this laptop connects, with which key, and what it sends there. One that was merely found, in a
repository that somebody else may have written, says nothing until its content was trusted, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from shlex import quote

from orchestrator.config.inventory import Inventory, Pod
from orchestrator.config.variables import EnvMap, taken_from_here
from orchestrator.errors import InputError, Untrusted
from orchestrator.files import write_atomically
from orchestrator.home import home
from orchestrator.store.names import key_of
from orchestrator.text import listing

# What an entry of this machine may ask of it beyond being used.
_OF_LOCAL = ("python", "env", "workdir")


def require(inventory: Inventory, pod: Pod, ask: Callable[[str], bool] | None) -> None:
    """Untrusted unless somebody answers for the inventory's content, or what the pod asks needs nobody to."""
    if not _asks_for_trust(inventory, pod) or is_trusted(inventory):
        return
    what = "; ".join(demands(inventory))
    if ask is not None and ask(f"{inventory.path} was found here, and nobody has trusted it yet. {what}. Trust it?"):
        trust(inventory)
        return
    raise Untrusted(
        f"{inventory.path} was found here, and nobody has trusted it yet: read it, then "
        f"`nsa-pod trust --inventory {quote(str(inventory.path))}`, or name it with --inventory ({what})"
    )


def demands(inventory: Inventory) -> list[str]:
    """What each pod of the inventory would have this laptop do, a clause each."""
    return [f"pod {name!r} would have this laptop {_demand(pod)}" for name, pod in inventory.pods.items()]


def is_trusted(inventory: Inventory) -> bool:
    """Whether somebody has answered for exactly this content."""
    return _record(inventory).is_file()


def trust(inventory: Inventory) -> None:
    """Answer for the inventory's content, as it was read. InputError for the built-in one."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    write_atomically(_record(inventory), f"{now} {inventory.path}\n")


def revoke(inventory: Inventory) -> bool:
    """Take the answer back; whether there was one."""
    found = is_trusted(inventory)
    _record(inventory).unlink(missing_ok=True)
    return found


def tell_what_leaves(pod: Pod, envs: Iterable[EnvMap], say: Callable[[str], None]) -> None:
    """Name the laptop's own variables whose values go to the pod with `envs`, each the first time that it does."""
    record = home() / "sent" / key_of(pod)
    known = record.read_text().split() if record.is_file() else []
    new = sorted({name for env in envs for name in taken_from_here(env)} - set(known))
    if new:
        say(f"{listing(new)} of this machine's own environment goes to pod {pod.name!r}, as from_env asks")
        write_atomically(record, "".join(f"{name}\n" for name in [*known, *new]))


def _asks_for_trust(inventory: Inventory, pod: Pod) -> bool:
    if inventory.named or inventory.path is None or _is_the_users_own(inventory.path):
        return False
    return pod.transport != "local" or bool(pod.model_fields_set & {*_OF_LOCAL})


def _is_the_users_own(path: Path) -> bool:
    """Whether it lies in the user's configuration, where no repository writes."""
    return path.resolve().is_relative_to(home().resolve())


def _demand(pod: Pod) -> str:
    sends = taken_from_here(pod.env)
    sent = f", and send {listing(sends)}" if sends else ""
    if pod.transport == "local":
        sets = [key for key in _OF_LOCAL if key in pod.model_fields_set]
        return f"run stages here{f', with its own {listing(sets)}' if sets else ''}{sent}"
    where = pod.ssh_config or f"{pod.user + '@' if pod.user else ''}{pod.host}:{pod.port or 22}"
    key = f" with {pod.identity_file}" if pod.identity_file else ""
    return f"connect to {where}{key}{sent}"


def _record(inventory: Inventory) -> Path:
    if not inventory.sha256:
        raise InputError("there is no pods.yaml here: expected one to trust (--inventory FILE)")
    # Of the content alone: the same in another clone, and asked about again whenever it changes.
    return home() / "trusted" / inventory.sha256
