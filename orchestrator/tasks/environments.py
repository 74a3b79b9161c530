"""The environments on a pod: set one up, list them, remove those that nobody uses."""

from __future__ import annotations

from typing import Any

from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.pod.session import Door
from orchestrator.tasks.bootstrap import Options, bootstrap, explain, is_system
from orchestrator.ui import Progress

_PRUNE_LIMIT_S = 900.0
_SHOWN = (
    "kind",
    "profile",
    "key",
    "python",
    "python_version",
    "torch_cuda",
    "packages",
    "built",
    "notes",
    "lock_sha256",
)


def set_up(door: Door, spec: EnvironmentSpec, progress: Progress, options: Options | None = None) -> dict[str, Any]:
    """Bootstrap the pod for `spec`; what is there now."""
    with door.open() as agent:
        environment = bootstrap(agent, door.facts(agent), spec, progress, options)
    return {name: environment[name] for name in _SHOWN if name in environment}


def reasons(door: Door, spec: EnvironmentSpec, options: Options | None = None) -> dict[str, Any]:
    """Which environment fits the pod, why, and why the preferred and newer ones do not. Nothing is installed."""
    if is_system(door.pod, spec):
        return {"profile": "system", "reasons": ["the pod's own Python is asked for"], "rejected": []}
    with door.open() as agent:
        chosen = explain(agent, door.facts(agent), spec, options)
    return {
        "profile": chosen.profile,
        "python": chosen.python,
        "requirements": list(chosen.requirements),
        "indexes": list(chosen.indexes),
        "wheels": [wheel.url or f"{wheel.name} {wheel.version} from source" for wheel in chosen.wheels],
        "reasons": list(chosen.reasons),
        "rejected": list(chosen.rejected),
    }


def on_pod(door: Door) -> list[dict[str, Any]]:
    """The environments on the pod, the last used first: key, profile, packages, bytes, age_s (since the last use)."""
    with door.open() as agent:
        return [dict(e) for e in agent.call("env", "list", "--workdir", agent.workdir)["environments"]]


def prune(
    door: Door, *, days: float | None = None, keep_bytes: int | None = None, dry_run: bool = False
) -> dict[str, Any]:
    """Remove environments not used for `days`, then the longest unused until the rest takes `keep_bytes`.

    {"dry_run", "removed", "kept": each with "why", "wheels": compiled ones that went, "freed_bytes"}; one that
    a run uses, or that was used just now, is never removed.
    """
    limits = [*(["--days", str(days)] if days is not None else [])]
    limits += ["--keep-bytes", str(keep_bytes)] if keep_bytes is not None else []
    limits += ["--dry-run"] if dry_run else []
    with door.open() as agent:
        return agent.call("env", "prune", "--workdir", agent.workdir, *limits, timeout=_PRUNE_LIMIT_S)
