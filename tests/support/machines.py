"""Facts of machines that are not here."""

from __future__ import annotations

from typing import Any

from orchestrator.pod.facts import PodFacts


def facts_with(*names: str, driver: str = "550.163.01", **raw: Any) -> PodFacts:
    """A pod with GPUs of these names; `raw` replaces what the agent's probe said."""
    gpus = [
        {"index": n, "name": name, "driver": driver, "compute_cap": "8.9",
         "memory_used_mib": 1, "memory_total_mib": 24564, "utilization_percent": 0}
        for n, name in enumerate(names)
    ]  # fmt: skip
    disk = {"path": "/w", "free_bytes": 2**36, "total_bytes": 2**40, "free_inodes": 10**7, "writable": True}
    pythons = [{"version": "3.11.2", "path": "/usr/bin/python3"}]
    uses = [{"by": None, "unknown": None} for _ in names]
    known = {
        "gpus": gpus,
        "gpu_use": uses,
        "driver_cuda": "12.4",
        "disk": disk,
        "programs": {"rsync": "/usr/bin/rsync", "uv": None},
    }
    return PodFacts({**known, "pythons": pythons, **raw})
