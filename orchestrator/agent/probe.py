"""Facts of a pod, for people (doctor) and for choosing its environment. Looks only, changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Sequence

from orchestrator.agent import lock, runs
from orchestrator.agent.env import source
from orchestrator.agent.host import gpu, gpu_use, machine
from orchestrator.shared.pythons import is_python
from orchestrator.shared.query import ask

_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(8, 15)))
_PROGRAMS = ("git", "rsync", "tar", "uv", "gcc", "cc", "clang", "ninja", "nvidia-smi")
_ABOUT_PYTHON = """
import json, os, platform, sys, sysconfig
print(json.dumps({"version": platform.python_version(), "implementation": sys.implementation.name,
    "soabi": sysconfig.get_config_var("SOABI"), "executable": sys.executable, "prefix": sys.prefix,
    "base": sys.base_prefix, "is_venv": sys.prefix != sys.base_prefix,
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))}))
"""


def probe(workdir: str) -> dict[str, Any]:
    """All facts; `workdir` (with ~) is where the runs are to be. What cannot be told is None or empty."""
    expanded = os.path.abspath(os.path.expanduser(workdir))
    with ThreadPoolExecutor(max_workers=8) as pool:
        gpus, cuda = pool.submit(gpu.list_gpus), pool.submit(gpu.driver_cuda)
        holders = pool.submit(gpu_use.holders)
        pythons = pool.map(_about, _named([sys.executable, *filter(None, map(shutil.which, _PYTHONS))]))
        return {
            "now": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "home": os.path.expanduser("~"),
            "workdir": expanded,
            **machine.facts(),
            "disk": machine.disk(expanded),
            "gpus": gpus.result(),
            "gpu_use": [use._asdict() for use in gpu_use.uses(gpus.result(), holders.result())],
            "gpu_complaint": None if gpus.result() else gpu.complaint(),
            "driver_cuda": cuda.result(),
            "programs": {name: shutil.which(name) for name in _PROGRAMS},
            "pythons": _distinct([python for python in pythons if python]),
            "built": source.names(Path(expanded)),
            "holder": lock.holder(Path(expanded)),
            "newest_run": runs.newest(Path(expanded)),
        }


def _named(pythons: Sequence[str]) -> list[str]:
    """One name for each that is to be asked: python3 is mostly a link to its neighbour python3.11.

    A link to what is not called Python may be a shim, which goes by the name that it was called by.
    """
    found: dict[tuple[str, str], str] = {}
    for python in pythons:
        file = os.path.realpath(python)
        found.setdefault((os.path.dirname(python), file) if is_python(file) else (python, ""), python)
    return list(found.values())


def _about(python: str) -> dict[str, Any] | None:
    """What an interpreter says of itself; None for one that does not run, or a shim with nothing behind it."""
    said = ask([python, "-I", "-c", _ABOUT_PYTHON])
    try:
        return {"path": python, **json.loads(said or "")}
    except ValueError:
        return None


def _distinct(pythons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each interpreter, under the first name that it was found by."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for python in pythons:
        found.setdefault((os.path.realpath(python["executable"]), python["prefix"]), python)
    return list(found.values())
