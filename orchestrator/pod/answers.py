"""The shapes of what the agent answers: a pod may answer anything, and what does not fit is refused here, once."""

from __future__ import annotations

from typing import Any

from orchestrator.shared.stage_record import misfit_of

_TEXT, _NUMBER = (str, None), (int, float)
_STATE = ("running", "ended", "lost")
_GPU = {"index": (int, str, None), "name": _TEXT, "driver": _TEXT, "compute_cap": _TEXT,
        "memory_used_mib": (int, str, None), "memory_total_mib": (int, str, None),
        "utilization_percent": (int, str, None)}  # fmt: skip
_PYTHON = {"version": str, "path": str, "executable": str, "implementation": str, "soabi": _TEXT, "has": [str]}
_DISK = {"path": str, "free_bytes": int, "total_bytes": int, "free_inodes": (int, None), "writable": bool}
_HOLDER = ({"dead": bool}, None)
_RUN = {"run_id": str, "state": _STATE, "commit": _TEXT, "runbook": _TEXT, "bytes": int}
_ENVIRONMENT = {"key": str, "packages": dict, "bytes": int, "age_s": _NUMBER, "in_use": bool}

# As in `agent.record`: types, literals, {key: shape}, [shape of each item]; a tuple lists alternatives.
_SHAPES: dict[str, Any] = {
    "probe": {
        "hostname": str, "boot_id": _TEXT, "os": str, "arch": str, "libc": [str], "cpus": (int, None),
        "cpu_model": _TEXT, "gpus": [_GPU], "gpu_complaint": _TEXT, "driver_cuda": _TEXT, "disk": _DISK,
        "programs": {"rsync": _TEXT, "uv": _TEXT}, "pythons": [_PYTHON], "holder": _HOLDER,
    },
    "runs": {"runs": [_RUN], "holder": _HOLDER},
    "holder": {"holder": _HOLDER},
    "launch": {"dead": (dict, None)},
    "status": {"state": _STATE, "bytes": int},
    "cancel": {"signalled": bool},
    "tree-hash": {"tree": str, "wrong": _TEXT},
    "env build": {"job": str, "started": bool},
    "env wait": {"state": str, "offset": int, "progress": [{"text": str, "phase": str, "t": _NUMBER}]},
    "env check": ({"state": "ready", "environment": {"notes": [str]}}, {"state": ("absent", "changed"), "reason": str}),
    "env list": {"environments": [_ENVIRONMENT]},
    "env prune": {"removed": list, "kept": list},
    "env system": {"python": str, "packages": dict},
}  # fmt: skip


def misfit(command: str, answer: Any) -> str | None:
    """The first part of an answer that is not as `command` answers; None if all fits."""
    return misfit_of(answer, _SHAPES.get(command, dict), "answer")
