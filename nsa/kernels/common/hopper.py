"""Where the kernels for sm_90 that are written in Gluon can run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module

import torch
import triton

from nsa.device import device_name
from nsa.kernels.common.launch import VERSION
from nsa.kernels.tuning.lookup import COMPILING_FOR

COMPILED_BY = (3, 6), (3, 9)
"""The first and the last Triton that they were seen with."""

INTERPRETER = "a CPU"
"""The target that a CPU is."""

HALVES = torch.float16, torch.bfloat16


@lru_cache
def lacking() -> str | None:
    """Why the installed Triton cannot be asked for them, or None. Gluon changes from version to version."""
    first, last = (".".join(map(str, version)) for version in COMPILED_BY)
    why = f"it is written in Gluon, and was compiled by Triton {first} to {last}, not {triton.__version__}"
    try:
        import_module("nsa.kernels.ranges.fused_gluon")
    except (ImportError, AttributeError):
        return why
    return None if COMPILED_BY[0] <= VERSION <= COMPILED_BY[1] else why


@lru_cache(maxsize=4096)
def unopposed(against: Callable[..., str | None], *facts: object) -> bool:
    """Whether `against` has no reason against these facts, of which every call asks."""
    return against(*facts) is None


def launcher_of(module: str) -> Callable[[], Callable[..., None]]:
    """What gives `launch` of a module in Gluon, which is imported when it is first needed."""

    @cache
    def launcher() -> Callable[..., None]:
        return import_module(module).launch  # type: ignore[no-any-return]

    return launcher


def target_of(device: torch.device) -> str:
    """What kernels on this device are compiled for: `sm_90` and so on, or INTERPRETER."""
    return COMPILING_FOR.get() or _name_of(device)


@lru_cache
def _name_of(device: torch.device) -> str:
    return device_name(device).removeprefix("cuda:") if device.type == "cuda" else INTERPRETER
