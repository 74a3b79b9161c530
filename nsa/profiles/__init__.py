"""Hardware profiles: thresholds by device, each with the measurement it came from.

They replace the runtime section of the seeds' `configs/base.yaml`, under the same keys.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

import torch

from nsa.device import capability
from nsa.profiles.profile import Measured, Profile

NAMES = ("cpu", "rocm", "sm80", "sm89", "sm90", "sm120")

__all__ = ["NAMES", "Measured", "Profile", "for_device", "load"]


@lru_cache
def load(name: str) -> Profile:
    """The profile of that name.

    Raises:
        ValueError: no such profile.
    """
    if name not in NAMES:
        raise ValueError(f"unknown hardware profile {name!r}; expected one of {', '.join(NAMES)}")
    profile: Profile = import_module(f"nsa.profiles.{name}").PROFILE
    return profile


def for_device(device: torch.device) -> Profile:
    """The profile of a device: its own, else that of the nearest older architecture, else the oldest."""
    found = capability(device)
    if found is None:
        return load("rocm" if device.type == "cuda" else "cpu")
    major, minor = found
    known = sorted(int(name[2:]) for name in NAMES if name.startswith("sm"))
    older = [sm for sm in known if sm <= major * 10 + minor]
    return load(f"sm{older[-1] if older else known[0]}")
