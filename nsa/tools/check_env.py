"""`python -m nsa.check_env [--json]`: what is installed here, and whether torch and Triton belong together.

The pairing is judged from torch's own requirement on Triton in its package metadata, never from a table. Exit code 0
where nothing contradicts it, 2 where something does.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

PACKAGES = ("torch", "triton", "flash-attn", "numpy")
REQUIREMENT = re.compile(r"^(?:pytorch-)?triton\b\s*\(?\s*(?P<operator>[=<>!~]=?)?\s*(?P<version>[0-9][\w.+!-]*)?")


def installed(package: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def triton_requirement(requirements: Iterable[str]) -> str | None:
    """torch's requirement on Triton without its environment marker, such as `triton==3.0.0`."""
    found = (line.split(";")[0].strip() for line in requirements if REQUIREMENT.match(line))
    return next((line for line in found if "rocm" not in line and "xpu" not in line), None)


def judge_pairing(torch: str | None, triton: str | None, requirement: str | None) -> str | None:
    """Why these versions do not belong together, or None.

    Args:
        torch, triton: installed versions, None where absent.
        requirement: torch's own, None where it has none (builds without CUDA).
    """
    if torch is None:
        return "torch is not installed"
    if requirement is None:
        return None
    if triton is None:
        return f"torch {torch} requires {requirement}, and Triton is not installed"
    match = REQUIREMENT.match(requirement)
    if match is None or match["operator"] != "==" or match["version"] is None:
        return f"torch {torch} requires {requirement}, which names no exact version to judge Triton {triton} by"
    if match["version"].split("+")[0] != triton.split("+")[0]:  # without local parts: 3.0.0+git1 -> 3.0.0
        return f"torch {torch} requires {requirement}, and Triton {triton} is installed"
    return None


def report() -> dict[str, Any]:
    """Versions, device and judgement, as a JSON object."""
    versions = {package: installed(package) for package in PACKAGES}
    requirement = triton_requirement(requires("torch") or []) if versions["torch"] else None
    problem = judge_pairing(versions["torch"], versions["triton"], requirement)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **versions,
        "torch_requires": requirement,
        **(_device() if versions["torch"] else {}),
        "driver": _driver(),
        "problem": problem,
        "ok": problem is None,
    }


def _device() -> dict[str, Any]:
    import torch  # absent in an environment that this command judges

    from nsa.device import device_name

    found: dict[str, Any] = {"torch_cuda": torch.version.cuda, "cuda_available": torch.cuda.is_available()}
    if found["cuda_available"]:
        _, _, architecture = device_name(torch.device("cuda")).partition(":")
        found |= {"device": torch.cuda.get_device_name(), "capability": architecture}
    return found


def _driver() -> str | None:
    """The NVIDIA driver's version, as nvidia-smi says it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (FileNotFoundError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else None


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; 0 or 2."""
    parser = argparse.ArgumentParser(prog="python -m nsa.check_env", description=__doc__)
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    as_json = parser.parse_args(argv).json
    found = report()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        width = max(len(name) for name in found)
        print("\n".join(f"{name:<{width}}  {'-' if value is None else value}" for name, value in found.items()))
    return 0 if found["ok"] else 2
