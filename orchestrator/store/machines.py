"""Which machine a pod was at its last run, as this laptop remembers: a rented address soon is another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.config.inventory import Pod
from orchestrator.files import write_atomically
from orchestrator.home import home
from orchestrator.shared.files import read_json
from orchestrator.shared.plan import Machine
from orchestrator.store.names import alias, key_of
from orchestrator.text import plain

# Of a probe's facts, those that say which machine it is, in which state; and how they are called.
_NAMES = {
    "hostname": "host name",
    "host_key": "host key",
    "gpus": "GPU",
    "driver": "driver",
    "boot_id": "boot",
}
_NONE = "none"


def changes(pod: Pod, facts: Machine) -> list[str]:
    """What is another than at the last run on `pod` that was launched from here, as clauses; nothing at the first."""
    last = _last(pod)
    now = _identity(facts)
    return [
        "the machine was started again"
        if key == "boot_id"
        else f"{name} {last['identity'].get(key, _NONE)} -> {now[key]}"
        for key, name in _NAMES.items()
        if last and last["identity"].get(key) != now[key]
    ]


def last_run(pod: Pod) -> str:
    """The run id of the last run on `pod` that was launched from here; empty if there is none."""
    return str(_last(pod).get("run_id", ""))


def remember(pod: Pod, run_id: str, facts: Machine) -> None:
    """Record that `run_id` was launched on `pod`, which was the machine of these facts."""
    write_atomically(_record(key_of(pod)), json.dumps({"run_id": run_id, "identity": _identity(facts)}, indent=1))


def _identity(facts: Machine) -> dict[str, str]:
    gpus = ", ".join(f"{plain(gpu.get('name'))} {plain(gpu.get('uuid'))}" for gpu in facts.get("gpus") or ())
    told = {
        "hostname": facts.get("hostname"),
        "host_key": facts.get("host_key"),
        "gpus": gpus,
        "driver": facts.get("driver"),
        "boot_id": facts.get("boot_id"),
    }
    return {key: plain(value) if value else _NONE for key, value in told.items()}


def _record(name: str) -> Path:
    return home() / "machines" / f"{name}.json"


def _last(pod: Pod) -> dict[str, Any]:
    """The pod's own record, else the one of an older store, which knew no inventories."""
    return _read(_record(key_of(pod))) or _read(_record(alias(pod.name)))


def _read(path: Path) -> dict[str, Any]:
    """{"run_id", "identity"}; empty where there is nothing that can be read."""
    found = read_json(path)
    return found if isinstance(found.get("identity"), dict) else {}
